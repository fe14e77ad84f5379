"""Runs a function in several processes that train together, without the start of new interpreters."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from tiny_run import write_corpus, write_spec

from xformc.compiler.spec import load_spec
from xformc.trainer.processes import joined
from xformc.trainer.train import Options, train_weights


def train_together(count: int, folder: Path, *runs: tuple[str, Options]) -> list[int | None]:
    """Train `folder/tiny.yaml` in `count` processes into these folders, one after the other; the exit codes."""
    processes = started(count, train_ranks, folder, *runs)
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def train_ranks(folder: Path, *runs: tuple[str, Options]) -> None:
    with joined() as processes:
        for name, options in runs:
            spec = load_spec(folder / "tiny.yaml")
            train_weights(spec, folder / "data", folder / name, options, quiet=True, processes=processes)


def train_specs(out: str, *specs: Path) -> None:
    """Train each spec on the data beside it, into the folder `out` beside it."""
    with joined() as processes:
        for path in specs:
            spec = load_spec(path)
            train_weights(spec, path.parent, path.parent / out, Options(), quiet=True, processes=processes)


def started(count: int, function: Callable[..., None], *arguments: object) -> list[BaseProcess]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["xformc.trainer.train"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        context.Process(target=_run, args=(rank, count, port, function, *arguments), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    return list(processes)


def _run(rank: int, count: int, port: int, function: Callable[..., None], *arguments: object) -> None:
    torch.set_num_threads(1)
    os.environ.pop("XFORMC_CHECK_PASSES", None)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    function(*arguments)


def write_tiny(folder: Path, *changes: tuple[str, str]) -> Path:
    """A spec of few steps, without dropout, and a corpus."""
    text = TINY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    write_spec(folder, text)
    write_corpus(folder / "data")
    return folder


TINY = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 60, dropout: 0.0}
train:
  schedule: {warmup_steps: 4, peak: 0.003}
  batch_tokens: 128
  accumulate: 2
  clip_norm: 1.0
  steps: 12
  checkpoint: {every_steps: 4, every_minutes: null}
  average: 2
"""
