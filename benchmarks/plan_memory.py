"""The planned memory of a training step beside what torch's allocator of the processor holds at its worst moment.

    python -m benchmarks.plan_memory SPEC [--rows 16] [--length 64]

Both are of one forward and backward pass in float32, without the weights.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import load_spec
from xformc.trainer.loop import autocast
from xformc.trainer.plan.memory import step_memory
from xformc.trainer.recompute import recompute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path, help="a spec whose inputs are tokens")
    parser.add_argument("--rows", type=int, default=16, help="examples of the batch")
    parser.add_argument("--length", type=int, default=64, help="positions of each input")
    arguments = parser.parse_args()
    graph = compile_training(load_spec(arguments.spec)).graph
    found = step_memory(graph, arguments.rows, arguments.length, batches=1, bfloat16=False, gpu=False)
    measured = measured_peak(graph, arguments.rows, arguments.length, (), bfloat16=False)
    print(f"planned {found.peak / 1e6:,.1f} MB, measured {measured / 1e6:,.1f} MB, {found.peak - measured:+,} bytes")


def measured_peak(graph: Graph, rows: int, length: int, patterns: Sequence[str], *, bfloat16: bool) -> int:
    """The most bytes that torch's allocator of the processor held at once, in a forward and a backward pass."""
    model = TorchModule(graph, 0)
    model.train()
    recompute(model, patterns)
    ids = [torch.ones(rows, length, dtype=torch.int64) for _ in graph.inputs]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        with autocast(torch.device("cpu"), bfloat16):
            loss = model(*ids)[0]
        loss.backward()
    profiler: Any = profiled.profiler
    events = [one for one in profiler.kineto_results.events() if one.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


if __name__ == "__main__":
    main()
