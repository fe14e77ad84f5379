import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from tiny_run import SPEC, train_tiny, write_corpus, write_spec

from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer import tensors
from xformc.trainer.checkpoint import list_checkpoints, newest_checkpoint
from xformc.trainer.train import Options, train, train_weights

pytestmark = pytest.mark.processor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec, a corpus, and the run `whole` that nothing interrupted."""
    folder = tmp_path_factory.mktemp("training")
    train_tiny(write_spec(folder), write_corpus(folder / "data"), folder / "whole", Options())
    return folder


def start(folder: Path, name: str, options: Options = Options()) -> Path:  # noqa: B008 (frozen)
    train_tiny(folder / "tiny.yaml", folder / "data", folder / name, options)
    return folder / name


def weights(run: Path) -> bytes:
    return (run / "weights.safetensors").read_bytes()


def test_train_writes_the_run(folder: Path) -> None:
    run = folder / "whole"
    assert {path.name for path in run.iterdir()} == {
        "checkpoints",
        "metrics.jsonl",
        "run.json",
        "spec.yaml",
        "tokenizer.model",
        "weights.safetensors",
    }
    assert [path.name for path in list_checkpoints(run)] == ["00000050", "00000055", "00000060"]
    assert read_weights(run).metadata["steps"] == "50,55,60"
    assert "encoder/0/self_attention/query/weight" in read_weights(run).arrays
    assert load_spec(run / "spec.yaml").resolved_yaml() == load_spec(folder / "tiny.yaml").resolved_yaml()


def test_train_lowers_the_validation_loss(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid_loss"] for line in lines if "valid_loss" in line]
    assert len(losses) == 12
    assert losses[-1] < 0.9 * losses[0]


def test_train_ends_with_the_lowest_validation_loss(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    best = min((line["valid_loss"], line["step"]) for line in lines if "valid_loss" in line)
    train_weights(load_spec(folder / "tiny.yaml"), folder / "data", folder / "whole", Options(resume=True))
    assert f"lowest validation loss: {best[0]:.4f} at step {best[1]}\n" in capfd.readouterr().err


def test_train_gives_the_same_bytes_again(folder: Path) -> None:
    assert weights(start(folder, "again")) == weights(folder / "whole")


def test_train_depends_on_the_seed(folder: Path) -> None:
    assert weights(start(folder, "seed", Options(seed=8))) != weights(folder / "whole")


def test_resume_after_the_end_changes_nothing(folder: Path) -> None:
    run = start(folder, "end")
    before = (run / "metrics.jsonl").read_bytes()
    start(folder, "end", Options(resume=True))
    assert weights(run) == weights(folder / "whole")
    assert (run / "metrics.jsonl").read_bytes() == before


def test_resume_continues_to_the_bit_after_minutes_ran_out(folder: Path) -> None:
    run = start(folder, "minutes", Options(minutes=1e-9))
    newest = newest_checkpoint(run)
    assert newest is not None
    assert newest.name == "00000001"
    start(folder, "minutes", Options(resume=True))
    assert read_weights(run / "checkpoints" / "00000060").arrays.keys() == read_weights(run).arrays.keys()
    final = Path("checkpoints", "00000060", "weights.safetensors")
    assert (run / final).read_bytes() == (folder / "whole" / final).read_bytes()


def test_resume_continues_to_the_bit_after_stops_at_random_moments(folder: Path) -> None:
    """A stop writes a checkpoint of its own, which changes neither the others nor their average."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["xformc.trainer.train"])
    run, moments, between = folder / "stopped", random.Random(), 0
    arguments = (folder / "tiny.yaml", folder / "data", run, Options(resume=True))
    for _ in range(4):
        process = context.Process(target=train_tiny, args=arguments)
        before = newest_checkpoint(run)
        process.start()
        while process.is_alive() and newest_checkpoint(run) == before:
            time.sleep(0.001)
        process.join(timeout=moments.uniform(0.0, 0.05))
        process.terminate()
        process.join()
        assert process.exitcode in (143, 0, -signal.SIGTERM)  # the last one at its end
        newest = newest_checkpoint(run)
        assert newest is not None
        between += int(newest.name) % 5 > 0
        if process.exitcode != 143:
            break
    assert between > 0
    start(folder, "stopped", Options(resume=True))
    assert [path.name for path in list_checkpoints(run)] == ["00000050", "00000055", "00000060"]
    assert weights(run) == weights(folder / "whole")


def test_a_run_without_a_checkpoint_says_that_it_begins_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = start(folder, "lost", Options(minutes=1e-9))
    for path in list_checkpoints(run):
        shutil.rmtree(path)
    train_weights(load_spec(folder / "tiny.yaml"), folder / "data", run, Options(resume=True, minutes=1e-9))
    assert "this run has no checkpoint, so training begins again, with new metrics\n" in capfd.readouterr().err


def test_resume_continues_to_the_bit_after_kill_at_random_moments(folder: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["xformc.trainer.train"])
    run, moments = folder / "killed", random.Random()
    arguments = (folder / "tiny.yaml", folder / "data", run, Options(resume=True))
    kills = 0
    for _ in range(4):
        process = context.Process(target=train_tiny, args=arguments)
        before = newest_checkpoint(run)
        process.start()
        while process.is_alive() and newest_checkpoint(run) == before:
            time.sleep(0.001)
        process.join(timeout=moments.uniform(0.0, 0.1))
        kills += process.is_alive()
        process.kill()
        process.join()
    process = context.Process(target=train_tiny, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert kills > 0
    assert weights(run) == weights(folder / "whole")
    assert not [path for path in run.rglob(".*")]


def train_until_killed(folder: Path, run: Path, writes: int) -> None:
    """Train, and die in the middle of a write of a tensor."""
    left, pwrite = iter(range(writes)), os.pwrite

    def killed(file: int, content: memoryview, offset: int) -> int:
        if next(left, None) is None:
            pwrite(file, content[: len(content) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return pwrite(file, content, offset)

    tensors.os.pwrite = killed
    train_tiny(folder / "tiny.yaml", folder / "data", run, Options(resume=True))


def test_resume_continues_to_the_bit_after_kill_in_the_middle_of_a_write(folder: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    run = folder / "written"
    process = context.Process(target=train_until_killed, args=(folder, run, 1000))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (part,) = run.glob("checkpoints/.*.partial")
    assert newest_checkpoint(run) is not None
    assert (part / "weights.safetensors").stat().st_size > 1000
    start(folder, "written", Options(resume=True))
    assert weights(run) == weights(folder / "whole")
    assert not [path for path in run.rglob(".*")]


def test_resume_passes_over_a_damaged_checkpoint(folder: Path) -> None:
    run = start(folder, "damaged")
    (run / "checkpoints" / "00000060" / "weights.safetensors").write_bytes(b"half")
    start(folder, "damaged", Options(resume=True))
    assert weights(run) == weights(folder / "whole")


def test_train_does_not_write_into_a_run(folder: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        start(folder, "whole")


def test_resume_refuses_other_text_and_another_spec(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the training data has changed"):
        train_tiny(folder / "tiny.yaml", write_corpus(tmp_path / "data", 199), folder / "whole", Options(resume=True))
    changed = write_spec(tmp_path, SPEC.replace("warmup_steps: 20", "warmup_steps: 30"))
    with pytest.raises(UserError, match=r"the spec has changed\n.*warmup_steps: 20.*\n.*warmup_steps: 30"):
        train_tiny(changed, folder / "data", folder / "whole", Options(resume=True))


def test_train_says_when_every_pair_is_too_long(folder: Path, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, SPEC + "  max_length: 3\n")
    for name in ("train.tsv", "valid.tsv"):
        lines = (folder / "data" / name).read_text().splitlines()
        pairs = [line.split("\t") for line in lines]
        (tmp_path / name).write_text("".join(f"{source} {source} {source}\t{target}\n" for source, target in pairs))
    with pytest.raises(UserError, match="every example is longer than 3 positions"):
        train_tiny(spec, tmp_path, tmp_path / "run", Options())
    assert not (tmp_path / "run").exists()


def test_train_scores_the_compiled_engine(folder: Path) -> None:
    """The last part of `train`, on the run that is there already."""
    result = train(load_spec(folder / "tiny.yaml"), folder / "data", folder / "whole", resume=True)
    assert 0 <= (result.scores["chrf"].value or 0) <= 100
    assert 0 <= (result.scores["exact_match"].value or 0) <= 1
    assert "bleu" in result.scores
    assert result.weights == folder / "whole" / "weights.safetensors"
    assert result.state.step == 60
