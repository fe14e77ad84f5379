"""Measures how long a step waits for a checkpoint: `python -m benchmarks.checkpoints`.

The model is transformer_base with Adam's states; the same tensors are written by torch.distributed.checkpoint.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import xformc
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.trainer.checkpoint import State, optimizer_tensors
from xformc.trainer.checkpoint_writer import CheckpointWriter

ROUNDS = 4


def main() -> None:
    """Print the seconds that a step waits, and those until the files are written."""
    torch.set_num_threads(1)
    model = xformc.load_spec("transformer_base").module()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, CheckpointWriter(Path(folder), {}) as writer:
        print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")

        def write(turn: int) -> Callable[[], object]:
            writer.save(State(step=turn), model, optimizer)
            return writer.wait

        measure("xformc", write)
        tensors = {**parameters_by_path(model), **optimizer_tensors(model, optimizer)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611", "RANK": "0", "WORLD_SIZE": "1"}
        dist.init_process_group("gloo")
        save: Any = vars(dcp)["async_save"]
        measure("dcp", lambda turn: save(tensors, checkpoint_id=Path(folder, f"dcp{turn}")).result)
        dist.destroy_process_group()


def measure(name: str, write: Callable[[int], Callable[[], object]]) -> None:
    """Print the times of a few writes; `write` begins one and returns a call that waits for its end."""
    for turn in range(ROUNDS):
        began = time.perf_counter()
        wait = write(turn)
        waited = time.perf_counter() - began
        wait()
        print(f"{name:8} waits {waited:.2f} s, written after {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
