from dataclasses import replace
from pathlib import Path

import pytest
import torch
from several_processes import started
from tiny_model import TinyModel, make_adam

from xformc.errors import UserError
from xformc.trainer import tensors
from xformc.trainer.checkpoint import State, checkpoint_folder, load_checkpoint
from xformc.trainer.checkpoint_writer import CheckpointWriter
from xformc.trainer.parallel import parallel
from xformc.trainer.processes import joined

FILES = ("weights.safetensors", "optimizer.safetensors")


def trained() -> tuple[TinyModel, torch.optim.Optimizer]:
    model = TinyModel()
    optimizer = make_adam(model)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def contents(run: Path, step: int) -> list[bytes]:
    return [(checkpoint_folder(run, step) / file).read_bytes() for file in FILES]


def test_checkpoint_has_the_tensors_of_its_step(tmp_path: Path) -> None:
    """Training goes on while they are written."""
    model, optimizer = trained()
    with CheckpointWriter(tmp_path, {}) as writer:
        for step in (1, 2):
            writer.save(State(step=step), model, optimizer)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(step)
    assert contents(tmp_path, 1) != contents(tmp_path, 2)
    again = TinyModel()
    load_checkpoint(checkpoint_folder(tmp_path, 2), again, make_adam(again))
    assert bool((again.embedding == 1).all())


def test_failed_write_ends_training_at_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    writer = CheckpointWriter(tmp_path, {})

    def full(file: int, content: memoryview, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors.os, "pwrite", full)
    writer.save(State(step=1), model, optimizer)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        writer.wait()
    writer.check()
    assert list((tmp_path / "checkpoints").iterdir()) == []


def save_in_parts(folder: Path, origin: int, wanted: int) -> None:
    """Load the checkpoint of step `origin` with a part of each parameter in each process, and write it as `wanted`."""
    with joined() as processes:
        model, _ = trained()
        parallel(model, processes, None, shard=True)  # pyright: ignore[reportArgumentType]
        optimizer = make_adam(model)
        state = load_checkpoint(checkpoint_folder(folder, origin), model, optimizer)
        assert len(model.embedding.to_local()) < len(model.embedding)  # pyright: ignore
        with CheckpointWriter(folder, {"who": "me"}, processes) as writer:
            writer.save(replace(state, step=wanted), model, optimizer)


def test_checkpoint_is_the_same_from_any_number_of_processes(tmp_path: Path) -> None:
    """The 20 rows of each parameter are in parts of 7, 7 and 6."""
    with CheckpointWriter(tmp_path, {"who": "me"}) as writer:
        writer.save(State(step=1), *trained())
    processes = started(3, save_in_parts, tmp_path, 1, 2)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    one, parts = contents(tmp_path, 1), contents(tmp_path, 2)
    assert one[1] == parts[1]
    assert one[0].replace(b'"steps":"1"', b'"steps":"2"') == parts[0]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["00000001", "00000002"]
