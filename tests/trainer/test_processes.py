import errno
import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from command_line import finish, spawn
from learnable_tasks import write_data, write_spec
from several_processes import started, train_ranks, train_specs, train_together, write_tiny
from tiny_model import copy_examples
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.specs import find_spec
from xformc.trainer import checkpoint_writer
from xformc.trainer.checkpoint import OPTIMIZER, list_checkpoints
from xformc.trainer.data.batches import Batch, make_batch
from xformc.trainer.launch import ENDED, STARTED, _report, launch  # pyright: ignore[reportPrivateUsage]
from xformc.trainer.parallel import check_shares
from xformc.trainer.processes import LOST, Processes, joined
from xformc.trainer.run import locked
from xformc.trainer.tensors import write_rows
from xformc.trainer.train import Options, train_weights

BOUND = 1e-5
"""Losses of this recipe on different numbers of processes, which add up in other orders, differ by less in float32."""

MUON_BOUND = 1e-3
"""With Muon, which makes matrices orthogonal in bfloat16."""

FLOAT32 = ("  steps: 12\n", "  steps: 12\n  precision: float32\n")
"""In bfloat16, to which other orders round otherwise, the losses differ by about 4e-4."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec and a corpus; the run `alone` of one process, and runs of two: `together`, `stopped` and continued, and in
    `parts`: stopped and continued with a part of each parameter in each process."""
    folder = write_tiny(tmp_path_factory.mktemp("processes"), FLOAT32)
    train_weights(load_spec(folder / "tiny.yaml"), folder / "data", folder / "alone", Options(), quiet=True)
    soon = 1e-9
    runs = (
        ("together", Options()),
        ("stopped", Options(minutes=soon)),
        ("stopped", Options(resume=True)),
        ("parts", Options(shard=True, minutes=soon)),
        ("parts", Options(shard=True, resume=True)),
    )
    assert train_together(2, folder, *runs) == [0, 0]
    return folder


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line.get("loss", line.get("valid_loss")) for line in lines]


def weights(run: Path) -> bytes:
    return (list_checkpoints(run)[-1] / "weights.safetensors").read_bytes()


def test_processes_have_the_losses_of_one(folder: Path) -> None:
    """Two processes take a batch each; three share the rows of both."""
    assert train_together(3, folder, ("three", Options())) == [0, 0, 0]
    for run in (folder / "together", folder / "three"):
        assert losses(run) == pytest.approx(losses(folder / "alone"), rel=BOUND)
        assert {path.name for path in run.iterdir()} == {path.name for path in (folder / "alone").iterdir()}


def test_four_processes_have_the_losses_of_one_and_go_on_from_it(folder: Path) -> None:
    """Whole models, parts of them, and both after a first step in one process alone."""
    spec, soon = load_spec(folder / "tiny.yaml"), Options(minutes=1e-9)
    for name in ("grown", "grown_parts"):
        train_weights(spec, folder / "data", folder / name, soon, quiet=True)
    runs = (
        ("four", Options()),
        ("four_parts", Options(shard=True)),
        ("grown", Options(resume=True)),
        ("grown_parts", Options(resume=True, shard=True)),
    )
    assert train_together(4, folder, *runs) == [0] * 4
    for name, _ in runs:
        assert losses(folder / name)[-2:] == pytest.approx(losses(folder / "alone")[-2:], rel=BOUND)
    assert losses(folder / "four") == pytest.approx(losses(folder / "alone"), rel=BOUND)


TASKS = ("tagging", "language_model", "images")


def test_tasks_have_the_losses_of_one_process(tmp_path: Path) -> None:
    specs = list[Path]()
    for name in TASKS:
        (tmp_path / name).mkdir()
        write_data(tmp_path / name, name)
        write_spec(tmp_path / name, name, "float32")
        path = tmp_path / name / f"{name}.yaml"
        text = (
            path.read_text()
            .replace("steps: 120", "steps: 6\n  accumulate: 2")
            .replace("every_steps: 60", "every_steps: 3")
        )
        path.write_text(text)
        specs.append(path)
        train_weights(load_spec(path), path.parent, path.parent / "alone", Options(), quiet=True)
    processes = started(2, train_specs, "together", *specs)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    for path in specs:
        assert losses(path.parent / "together") == pytest.approx(losses(path.parent / "alone"), rel=10 * BOUND), path


def test_gradients_are_reduced_once_in_a_step(tmp_path: Path) -> None:
    """Of the two batches that each process has of the four of a step; both have drawn the same subwords."""
    few = ("steps: 12", "steps: 3\n  precision: float32\n  tokenizer: {sampling: 0.2}")
    write_tiny(tmp_path, ("accumulate: 2", "accumulate: 4"), few, ("vocabulary: 60", "vocabulary: 50"))
    processes = started(2, count_reductions, tmp_path)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [int((tmp_path / f"reductions.{rank}").read_text()) for rank in range(2)] == [3, 3]
    train_weights(load_spec(tmp_path / "tiny.yaml"), tmp_path / "data", tmp_path / "alone", Options(), quiet=True)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=BOUND)


def count_reductions(folder: Path) -> None:
    """Train, and write how often each process reduced the gradients, which all fit into one bucket."""
    found, allreduce = list[int](), cast(Any, default_hooks).allreduce_hook

    def counted(model: torch.nn.Module) -> None:
        def hook(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            found.append(bucket.index())
            return allreduce(None, bucket)

        cast(Any, model).register_comm_hook(None, hook)

    ours = DistributedDataParallel.__init__

    def made(self: DistributedDataParallel, *arguments: Any, **options: Any) -> None:
        ours(self, *arguments, **options)
        counted(self)

    with joined() as processes:
        DistributedDataParallel.__init__ = made
        spec = load_spec(folder / "tiny.yaml")
        train_weights(spec, folder / "data", folder / "run", Options(), quiet=True, processes=processes)
        (folder / f"reductions.{processes.rank}").write_text(str(len(found)))


def test_run_goes_on_in_as_many_processes_to_the_bit(folder: Path) -> None:
    assert [folder.name for folder in list_checkpoints(folder / "stopped")] != ["00000008", "00000012"]
    assert weights(folder / "stopped") == weights(folder / "together")


def test_run_goes_on_with_parameters_in_parts_and_alone(folder: Path) -> None:
    run = folder / "parts"
    assert losses(run)[-2:] == pytest.approx(losses(folder / "together")[-2:], rel=BOUND)
    shutil.rmtree(list_checkpoints(run)[-1])
    train_weights(load_spec(folder / "tiny.yaml"), folder / "data", run, Options(resume=True), quiet=True)
    assert losses(run)[-1] == pytest.approx(losses(folder / "alone")[-1], rel=BOUND)


def test_muon_updates_whole_matrices_whoever_has_their_rows(tmp_path: Path) -> None:
    """In 3 processes, two heads are in two of them; the run goes on with whole matrices, and the other way."""
    muon = ("  clip_norm: 1.0\n", "  optimizer: {muon: {}}\n  ema: 0.9\n")
    write_tiny(tmp_path, FLOAT32, muon, ("steps: 12", "steps: 4"), ("every_steps: 4", "every_steps: 2"))
    spec, soon = load_spec(tmp_path / "tiny.yaml"), Options(minutes=1e-9)
    for run, options in (("alone", Options()), ("grown", soon)):
        train_weights(spec, tmp_path / "data", tmp_path / run, options, quiet=True)
    runs = ("parts", Options(shard=True)), ("grown", Options(shard=True, resume=True))
    assert train_together(3, tmp_path, *runs) == [0, 0, 0]
    shutil.copytree(tmp_path / "parts", tmp_path / "back")
    shutil.rmtree(list_checkpoints(tmp_path / "back")[-1])
    train_weights(spec, tmp_path / "data", tmp_path / "back", Options(resume=True), quiet=True)
    for run in ("parts", "grown", "back"):
        assert losses(tmp_path / run)[-1] == pytest.approx(losses(tmp_path / "alone")[-1], rel=MUON_BOUND)


def test_process_that_is_killed_ends_the_others(folder: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path, ("steps: 12", "steps: 4000"))
    processes = started(2, train_ranks, tmp_path, ("run", Options()))
    while not list_checkpoints(tmp_path / "run"):
        assert all(process.is_alive() for process in processes)
        time.sleep(0.01)
    processes[1].kill()
    began = time.monotonic()
    processes[0].join(60)
    assert time.monotonic() - began < 30, "it took 0.9 s on a quiet machine"
    assert processes[0].exitcode == 1  # UserError, which the command line turns into 2
    options = Options(resume=True, minutes=1e-9)
    assert train_weights(load_spec(tmp_path / "tiny.yaml"), tmp_path / "data", tmp_path / "run", options).state.step


def train_and_end(folder: Path, seconds: float) -> None:
    """Train in parts; the second process is killed between its rows of the weights and of the states at step 8, after
    some seconds, in which the first one may have begun to wait for them."""

    def write_or_end(path: Path, *rows: Any) -> None:
        if path.parent.name == ".00000008.partial" and path.name == OPTIMIZER:
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)
        write_rows(path, *rows)

    with joined() as processes:
        if not processes.first:
            checkpoint_writer.write_rows = write_or_end
        options = Options(shard=True)
        run = folder / f"ended-{seconds}"
        train_weights(load_spec(folder / "tiny.yaml"), folder / "data", run, options, processes=processes)


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_checkpoint_that_a_killed_process_was_writing_is_left_out(folder: Path, seconds: float) -> None:
    """The run goes on from the one before it, with the losses of a run that was not killed."""
    processes, run = started(2, train_and_end, folder, seconds), folder / f"ended-{seconds}"
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [1, -signal.SIGKILL]
    assert [path.name for path in list_checkpoints(run)] == ["00000004"]
    train_weights(load_spec(folder / "tiny.yaml"), folder / "data", run, Options(resume=True), quiet=True)
    assert losses(run)[-1] == pytest.approx(losses(folder / "alone")[-1], rel=BOUND)
    assert not list((run / "checkpoints").glob(".*"))


def train_without_space(folder: Path) -> None:
    """Train in parts; the second process cannot write its rows at step 8."""

    def write_or_fail(path: Path, *rows: Any) -> None:
        if path.parent.name == ".00000008.partial":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_rows(path, *rows)

    with joined() as processes:
        if not processes.first:
            checkpoint_writer.write_rows = write_or_fail
        run, options = folder / "without-space", Options(shard=True)
        train_weights(load_spec(folder / "tiny.yaml"), folder / "data", run, options, processes=processes)


def test_a_process_that_cannot_write_its_rows_ends_all(folder: Path) -> None:
    processes = started(2, train_without_space, folder)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [LOST, 1]
    assert [path.name for path in list_checkpoints(folder / "without-space")] == ["00000004"]


def fail() -> None:
    try:
        with joined() as processes:
            processes.agree(0.0)
            raise UserError("wrong data")
    except UserError:
        time.sleep(1.0)  # the first process keeps the store
        os._exit(40)


def test_one_process_reports_an_error_of_all() -> None:
    processes = started(2, fail)
    for process in processes:
        process.join(60)
    assert sorted(process.exitcode or 0 for process in processes) == [2, 40]


def test_launch_runs_the_command_in_each_process(capfd: pytest.CaptureFixture[str]) -> None:
    launch(2, ["--version"])
    out, err = capfd.readouterr()
    assert out.count("xformc ") == 2
    assert err == ""


def first_rank_of(folder: Path) -> int:
    """The process with rank 0 among those whose command names the folder."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended, or be another user's
            given = b"\0" + (process / "environ").read_bytes()
            if b"\0RANK=0\0" in given and str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    [first] = found
    return first


def test_a_rank_that_is_killed_ends_the_command_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`xformc train --nproc 2`: the first process, which keeps the store, is killed after a checkpoint."""
    monkeypatch.delenv(STARTED, raising=False)  # by the tests of `launch` in this process
    write_tiny(tmp_path, ("steps: 12", "steps: 4000"))
    command = ("train", tmp_path / "tiny.yaml", "--data", tmp_path / "data", "-o", tmp_path / "run", "--nproc", "2")
    running = spawn(*command, "--quiet", stdout=subprocess.DEVNULL)
    while not list_checkpoints(tmp_path / "run"):
        assert running.poll() is None
        time.sleep(0.01)
    os.kill(first_rank_of(tmp_path), signal.SIGKILL)
    began = time.monotonic()
    code, message = finish(running)
    assert time.monotonic() - began < 30
    assert (code, message.count("error:")) == (2, 1) and "process 0 of 2 was killed by SIGKILL" in message
    code, message = finish(spawn(*command, "--resume", "--minutes", "0.00001", "--quiet", stdout=subprocess.DEVNULL))
    assert code == 0, message
    assert (tmp_path / "run" / "weights.safetensors").exists()


def test_a_signal_stops_all_processes_after_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STARTED, raising=False)
    write_tiny(tmp_path, ("steps: 12", "steps: 4000"), ("every_steps: 4", "every_steps: 1000"))
    command = ("train", tmp_path / "tiny.yaml", "--data", tmp_path / "data", "-o", tmp_path / "run", "--nproc", "2")
    running, metrics = spawn(*command, stdout=subprocess.DEVNULL), tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()):
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    code, message = finish(running)
    [checkpoint] = list_checkpoints(tmp_path / "run")
    assert code == 143
    assert f"stopped after step {int(checkpoint.name):,}; --resume continues from there\n" in message
    assert "Traceback" not in message


def test_launch_ends_with_the_exit_code_of_a_reported_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        launch(1, ["list", "--wrong"])
    assert caught.value.code == 2
    assert "--wrong" in capfd.readouterr().err


class Failed(Exception):
    def __init__(self, *codes: int) -> None:
        self.failures = {rank: type("Failure", (), {"exitcode": code})() for rank, code in enumerate(codes)}


def test_launch_names_the_process_that_was_killed() -> None:
    with pytest.raises(UserError, match="process 1 of 2 was killed by SIGKILL; all have ended") as caught:
        _report(Failed(LOST, -signal.SIGKILL), 2)  # pyright: ignore[reportArgumentType]
    assert caught.value.hint == "continue from the last checkpoint with --resume"
    with pytest.raises(UserError, match="process 0 of 2 was killed by SIGKILL"):  # and the launcher has ended the other
        _report(Failed(-signal.SIGKILL, ENDED), 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="process 0 of 2 was ended; all have ended"):
        _report(Failed(ENDED, ENDED), 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="process 0 of 2 lost its connection"):
        _report(Failed(LOST), 2)  # pyright: ignore[reportArgumentType]


def batch() -> Batch:
    return make_batch(copy_examples(5), np.arange(5))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_parts_of_a_batch_are_its_rows(count: int) -> None:
    parts = [batch().part(index, count) for index in range(count)]
    for name, tensor in {**batch().inputs, **batch().targets}.items():
        joint = torch.cat([{**part.inputs, **part.targets}[name] for part in parts])
        assert torch.equal(joint, tensor)
    assert sum(part.count for part in parts) == batch().count


def test_part_without_rows_counts_nothing() -> None:
    parts = [batch().part(index, 8) for index in range(8)]
    assert sum(part.count for part in parts) == batch().count
    assert [len(part.labels) for part in parts] == [1] * 8
    assert sum(part.count == 0 for part in parts) == 3


def test_processes_take_whole_batches_where_they_can() -> None:
    group = (batch(), batch(), batch(), batch())
    assert Processes(1, 2).share(group) == group[1::2]
    assert [len(part.labels) for part in Processes(2, 3).share(group)] == [2] * 4


def test_rows_are_not_shared_if_the_loss_compares_them() -> None:
    spec = load_spec(find_spec("sentence_embedding"))
    graph = run_passes(run_passes(begin(spec), after=SHARED)).graph
    check_shares(graph, 4, Processes(0, 2))
    with pytest.raises(UserError, match="2 processes cannot share the rows of a batch: 'contrastive'") as caught:
        check_shares(graph, 3, Processes(0, 2))
    assert caught.value.hint == "set train.accumulate to a multiple of 2: each process then takes whole batches"


def test_run_is_trained_by_one_command_at_a_time(folder: Path) -> None:
    with (
        locked(folder / "alone"),
        pytest.raises(UserError, match="another process is training this run") as caught,
        locked(folder / "alone"),
    ):
        pass
    assert caught.value.hint == "wait until it has ended, or train into another folder with -o"
    with locked(folder / "alone"):
        pass
