"""Tests that need a GPU: certificates of engines, PyTorch modules and their training; `make test-gpu`.

    python -m tests.gpu                                   # under 9 minutes on one H100 or H200, no network
    python -m tests.gpu --device cpu --specs gpt bert     # the same on a CPU, to check that everything runs

Each row is a test; a row that could not run has the reason, and the exit code is 1 if a row failed. Results are written
after every row to build/test-gpu.json, or to the folder in the environment variable OUT.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.report import Report, make_parser, parse, preload
from tests.gpu import certificates, modules
from tests.gpu.certificates import TARGETS
from tests.small_specs import names
from tests.tiny_run import SPEC, write_corpus
from xformc.compiler.spec import load_spec
from xformc.trainer.train import train

FOR_CERTIFICATES = 0.7
"""Of the time that is left when the quick rows are done; the rest is for what must be compiled."""


def main() -> None:
    """Run what the command line asks for."""
    arguments = arguments_of_command()
    device, begin = torch.device(arguments.device), time.monotonic()
    preload("torch._dynamo", "torch._inductor.compile_fx")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    report = Report(arguments.out / "test-gpu.json", "test-gpu", begin + arguments.seconds, device)
    report.row({"xformc train": str(device)}, lambda: trained(device), most=60.0)
    modules.measure(report, arguments.specs)
    compiling, report.deadline = report.deadline, time.monotonic() + FOR_CERTIFICATES * report.left
    certificates.measure(report, arguments.specs, arguments.targets, arguments.precisions, arguments.processes)
    report.deadline = compiling
    if arguments.compile:
        modules.measure_compiled(report, arguments.specs)
    failed = sum("failed" in row for row in report.rows)
    unknown = sum("reason" in row and "failed" not in row for row in report.rows)
    passed = len(report.rows) - failed - unknown
    print(f"{report.path}: {passed} passed, {failed} failed, {unknown} could not be run")
    sys.exit(int(failed > 0))


def trained(device: torch.device) -> dict[str, Any]:
    """`xformc train` for two updates of a tiny model, scored by its engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = folder / "tiny.yaml"
        spec.write_text(SPEC.replace("steps: 60", "steps: 2"), encoding="utf-8")
        result = train(load_spec(spec), write_corpus(folder / "data"), folder / "run", minutes=None)
        identity = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    return {"step": result.state.step, "precision": identity["precision"], "best_loss": result.state.best_loss}


def arguments_of_command() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--specs", nargs="+", default=names(), help="of the shipped ones; all if left out")
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS, help="of the engines")
    every = tuple(certificates.PRECISIONS)
    parser.add_argument("--precisions", nargs="+", default=every, choices=every, help="of the engines")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--processes", type=int, default=max(1, min(8, cores // 2)), help="for certificates")
    return parse(parser, "--device cpu")


if __name__ == "__main__":
    main()
