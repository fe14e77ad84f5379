"""Training and decoding times of attention: the named block, the block spelled out in primitives, and left unfused.

python -m benchmarks.attention [--rounds 7]

All three compute the same function. Each round runs them one after another. Figures are medians and ratios to the named
block.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from xformc.compiler.backends.onnx.initializers import Initializers, save_model
from xformc.compiler.backends.onnx.models import stepwise_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import DERIVED, SHARED, begin, run_passes
from xformc.compiler.program import Program
from xformc.compiler.spec import load_spec
from xformc.runtime.session import open_model

NAMED = "extends: transformer_base\nsizes: {layers: 2, dropout: 0.0}\n"
WRITTEN = f"""{NAMED}
blocks:
  attention:
    doc: Multi-head attention, written out.
    takes: {{memory: value, causal: flag, relation: {{word: cross}}}}
    do:
      query: {{linear: {{from: x, to: [heads, d_k]}}}}
      key: {{linear: {{from: memory, to: [heads, d_k]}}}}
      value: {{linear: {{from: memory, to: [heads, d_v]}}}}
      keys: {{as_keys: {{from: key}}}}
      values: {{as_keys: {{from: value}}}}
      scores: {{contract: {{from: query, by: keys, over: d_k}}}}
      scaled: {{scale: 1 / sqrt(d_k)}}
      seen: {{mask: {{causal: causal}}}}
      weights: {{softmax: keys}}
      mixed: {{contract: {{by: values, over: keys}}}}
      output: {{linear: {{over: [heads, d_v], to: d_model}}}}
"""
ROWS, SOURCE, TARGET = 8, 32, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        graphs = make_programs(Path(folder))
        jobs = {
            "training": {name: training(graph) for name, graph in graphs.items()},
            "decoding": {name: decoding(graph, Path(folder) / name) for name, graph in graphs.items()},
        }
        named, written = ([node.op for node in graphs[name].graph.nodes] for name in ("named block", "written out"))
        print(f"the named block and attention written out are {'the same' if named == written else 'DIFFERENT'} ops")
        print(f"{'':10}{'form':14}{'ms':>8}{'ratio':>8}")
        for job, forms in jobs.items():
            times = {name: list[float]() for name in forms}
            for _ in range(rounds):
                for name, run in forms.items():
                    began = time.perf_counter()
                    run()
                    times[name].append(1000 * (time.perf_counter() - began))
            medians = {name: statistics.median(values) for name, values in times.items()}
            for name, median in medians.items():
                print(f"{job:10}{name:14}{median:8.1f}{median / medians['named block']:8.2f}")


def make_programs(folder: Path) -> dict[str, Program]:
    """Return each form before the passes that only training or only an engine needs."""
    named, written = folder / "named.yaml", folder / "written.yaml"
    named.write_text(NAMED)
    written.write_text(WRITTEN)
    return {
        "named block": run_passes(begin(load_spec(named)), after=SHARED),
        "written out": run_passes(begin(load_spec(written)), after=SHARED),
        "unfused": run_passes(begin(load_spec(written)), after="elaborate"),
    }


def training(program: Program) -> Callable[[], None]:
    """Return a function that runs one forward and backward pass over a batch."""
    module = TorchModule(program.graph).train()
    source, target = (torch.randint(4, 37000, (ROWS, length)) for length in (SOURCE, TARGET))

    def run() -> None:
        module.zero_grad()
        module(source, target).mean().backward()

    run()
    return run


def decoding(program: Program, folder: Path) -> Callable[[], None]:
    """Return a function that runs the derived step over all positions of a batch in ONNX Runtime."""
    folder.mkdir()
    engine = run_passes(program.for_engine("cpu"), after=DERIVED, without=("share", "fuse", "hoist"))
    weights = Initializers(TorchModule(engine.graph).arrays())
    save_model(stepwise_model(engine, weights), weights, folder)
    session, random = open_model(folder / "model.onnx"), np.random.default_rng(0)
    feeds = {
        name: random.integers(4, 37000, (ROWS, length)) for name, length in (("source", SOURCE), ("target", TARGET))
    }

    def run() -> None:
        session.run(None, feeds)

    run()
    return run


if __name__ == "__main__":
    main()
