"""Compile time by depth: the seconds of each pass, and how they grow with the number of layers.

python -m benchmarks.compile_time [--layers 6 12 24 48] [--extends transformer_base]

The layers are narrow, so that the passes are measured and not the initialization of weights. Times are CPU seconds, the
best of three rounds. The last column is x in seconds ~ nodes^x, fitted to all columns; 1 is linear.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import TypeVar

from xformc.compiler.backends.onnx.initializers import Initializers
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.explain.cost.spec_cost import report
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.pipeline import PASSES, begin, run_passes
from xformc.compiler.spec import Spec, load_spec

T = TypeVar("T")
SIZES = "d_model: 16, d_ff: 16, heads: 2, vocabulary: 50"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 12, 24, 48])
    parser.add_argument("--extends", default="transformer_base")
    arguments = parser.parse_args()
    stages: dict[str, list[float]] = {}
    nodes: list[int] = []
    for layers in arguments.layers:
        seconds, count = best_of(arguments.extends, layers)
        nodes.append(count)
        for name, taken in seconds.items():
            stages.setdefault(name, []).append(taken)
    stages["in all"] = [sum(column) for column in zip(*stages.values(), strict=True)]
    print(f"{'layers':12}" + "".join(f"{layers:9}" for layers in arguments.layers) + "   growth")
    print(f"{'nodes':12}" + "".join(f"{count:9,}" for count in nodes))
    for name, taken in stages.items():
        print(f"{name:12}" + "".join(f"{second:7.3f} s" for second in taken) + growth(nodes, taken))


def growth(nodes: list[int], seconds: list[float]) -> str:
    if len(nodes) < 2:
        return ""
    slope, _ = linear_regression([log(count) for count in nodes], [log(taken) for taken in seconds])
    return f"{slope:9.2f}"


def best_of(extends: str, layers: int, rounds: int = 3) -> tuple[dict[str, float], int]:
    """Return the shortest time of each stage, and the number of nodes of the graph before any pass."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep.yaml"
        path.write_text(f"extends: {extends}\nsizes: {{{SIZES}, layers: {layers}}}\n")
        found = [compile_once(path) for _ in range(rounds)]
    return {name: min(seconds[name] for seconds, _ in found) for name in found[0][0]}, found[0][1]


def compile_once(path: Path) -> tuple[dict[str, float], int]:
    """Return the seconds of each stage, and the number of nodes of the graph before any pass."""
    clock = Clock()
    spec: Spec = clock.run("load", lambda: load_spec(path))
    written: Graph = clock.run("elaborate", spec.graph)
    program = begin(spec, "cpu")
    for name in [item.name for item in PASSES if item.name != "elaborate"]:
        program = clock.run(name, partial(run_passes, program, after=name))
    compiled = program
    clock.run("verify", lambda: verify(compiled.graph))
    module = clock.run("torch", lambda: TorchModule(compiled.graph))
    weights = Initializers(module.arrays())
    clock.run("onnx", lambda: emit_engine(compiled, weights))
    clock.run("report", lambda: report(spec, 64, 2))
    return clock.seconds, len(written.nodes)


class Clock:
    """Runs stages and records their times."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, name: str, stage: Callable[[], T]) -> T:
        gc.collect()
        began = time.process_time()
        result = stage()
        self.seconds[name] = time.process_time() - began
        return result


if __name__ == "__main__":
    main()
