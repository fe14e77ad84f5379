"""Decoding and training on a GPU against Hugging Face, CTranslate2 and plain PyTorch; `make bench-gpu`.

    python -m benchmarks.gpu                              # under 9 minutes on one H100 or H200, no network
    python -m benchmarks.gpu --device cpu --quick         # a tiny model, to check that everything runs

Weights are randomly initialized, and no output may end before its limit, so that all do the same work: sources of 25
tokens, outputs of 64 tokens. Results are written after every row to build/bench-gpu.json, or to the folder in the
environment variable OUT. A row that cannot be measured has the reason.
"""

import argparse
import time
from typing import Any

import torch

from benchmarks.gpu import decoding, limits, training
from benchmarks.gpu.players import Setting
from benchmarks.gpu.report import Report, make_parser, parse, preload
from xformc.compiler.spec import Spec

GIB, MIB = 2**30, 2**20
PARTS = ("decoding", "training", "plans", "compiled")
"""Decoding beside peers, training, decoding by TensorRT's plans, and by Hugging Face's compiled model."""


def main() -> None:
    """Run the benchmark."""
    arguments = arguments_of_command()
    device, begin = torch.device(arguments.device), time.monotonic()
    preload("torch._dynamo", "torch._inductor.compile_fx", "transformers.models.marian.modeling_marian", "ctranslate2")
    report = Report(arguments.out / "bench-gpu.json", "bench-gpu", begin + arguments.seconds, device)
    found = report.row({"limits": str(device)}, lambda: device_limits(device, quick=arguments.quick))
    plan = (decoding.QUICK if arguments.quick else decoding.FULL).of(arguments.models)

    def setting(text: str) -> Setting:
        return Setting(text, device, arguments.numbers)

    bandwidth = found.get("copied_bytes_per_second")
    if "decoding" in arguments.parts:
        players = {**decoding.CUDA, **decoding.PEERS}
        chosen = {name: make for name, make in players.items() if name in (arguments.players or players)}
        decoding.measure(report, plan, setting, chosen, bandwidth)
    peak = limits.peak(device) or found.get("bfloat16_products_per_second") or float("nan")
    train, spec_of = (training.QUICK, written) if arguments.quick else (training.FULL, training.shipped)
    if "training" in arguments.parts:
        training.measure(report, train.of(arguments.models), device, spec_of, peak, compiled=arguments.compile)
    if "plans" in arguments.parts:
        decoding.measure(report, plan, setting, decoding.TENSORRT, bandwidth)  # last, because plans take long to build
    if "compiled" in arguments.parts and arguments.compile:
        decoding.measure_compiled(report, plan, setting)
    print(f"{report.path}: {len(report.rows)} rows, {sum('reason' in row for row in report.rows)} not measured")


def device_limits(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Measure the limits of the device."""
    return {
        "copied_bytes_per_second": limits.bandwidth(device, 4 * MIB if quick else GIB),
        "bfloat16_products_per_second": limits.product_rate(device, 64 if quick else 8192),
        "bfloat16_peak_of_data_sheet": limits.peak(device),
    }


def written(text: str) -> Spec:
    """Return the spec with this text."""
    return Setting(text, torch.device("cpu"), "float32").spec


def arguments_of_command() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny model, to check that everything runs")
    parser.add_argument(
        "--numbers", choices=("float32", "float16", "bfloat16"), help="precision; default: float16, on a CPU float32"
    )
    parser.add_argument("--models", nargs="+", choices=("base", "big"), help="those to measure; default: both")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="of the benchmark; default: all")
    players = (*decoding.CUDA, *decoding.PEERS)
    parser.add_argument("--players", nargs="+", choices=players, help="those that decode; default: all")
    arguments = parse(parser, "--device cpu --quick")
    if arguments.quick and arguments.models is not None:
        parser.error("--quick has a model of its own: leave out --models")
    arguments.numbers = arguments.numbers or ("float16" if arguments.device == "cuda" else "float32")
    return arguments


if __name__ == "__main__":
    main()
