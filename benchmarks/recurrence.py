"""A linear recurrence in training: the parallel scan beside the loop over positions.

python -m benchmarks.recurrence [--cells state_space outer_products] [--sizes 64x1x8 256x1x1] [--positions 512]

A size is d_model x d_state x rows. The model is the recurrence alone: a diagonal state space, whose decay is learned;
a state with a gate that depends on the input; or outer products in four heads, with a gate for each head or for each
number of a key, which run as linear attention. The two take turns on the same batch in one process, and the first turn
does not count. Times are CPU times of a forward and backward pass: median, lowest and highest. Errors are the largest
differences of the results and of the gradients, relative to the largest result or gradient.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import load_spec

CELLS = ["state_space", "gated", "outer_products", "keyed_products"]
SPEC = """\
task: tagging
sizes: {{d_model: {width}, d_state: {state}{more}}}
inputs: {{frames: {{vectors: d_model}}}}
model: {{states: {{from: frames, do: [recurrent]}}}}
choices: {{cell: {cell}}}
blocks:
  recurrent:
    choose: cell
    state_space:
      - recurrence:
          state: {{memory: [d_model, d_state]}}
          cell:
            do:
              rate: {{weight: [d_model, d_state]}}
              fading: sigmoid
              entrance: {{weight: {{from: x, axes: [d_model, d_state]}}}}
              exit: {{weight: {{from: x, axes: [d_model, d_state]}}}}
              kept: {{times: {{from: memory, by: fading}}}}
              new: {{times: {{from: x, by: entrance}}}}
              memory: {{plus: {{from: kept, by: new}}}}
              seen: {{times: {{from: memory, by: exit}}}}
              result: {{sum: {{over: d_state}}}}
    gated:
      - recurrence:
          state: {{memory: [d_model, d_state]}}
          cell:
            do:
              rate: {{weight: [d_model, d_state]}}
              scaled: {{times: {{from: x, by: rate}}}}
              open: sigmoid
              change: {{minus: {{from: x, by: memory}}}}
              part: {{times: {{by: open}}}}
              memory: {{plus: {{by: memory}}}}
              result: {{sum: {{over: d_state}}}}
    outer_products:
      - recurrence:
          state: {{memory: [heads, d_state, d_v]}}
          cell:
            do:
              query: {{linear: {{from: x, to: [heads, d_state]}}}}
              key: {{linear: {{from: x, to: [heads, d_state]}}}}
              value: {{split: {{from: x, axis: d_model, into: [heads, d_v]}}}}
              new: {{times: {{from: value, by: key}}}}
              gate: {{linear: {{from: x, to: {gates}}}}}
              open: sigmoid
              kept: {{times: {{from: memory, by: open}}}}
              memory: {{plus: {{from: kept, by: new}}}}
              seen: {{contract: {{from: memory, by: query, over: d_state}}}}
              result: {{merge: {{axes: [heads, d_v], to: d_model}}}}
"""
HEADS = ", heads: 4, d_v: d_model / heads"
GATES = {"outer_products": "heads", "keyed_products": "[heads, d_state]"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument("--sizes", nargs="+", default=["64x1x8", "256x1x1", "256x16x1"])
    parser.add_argument("--positions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.positions} positions")
    for cell, size in itertools.product(arguments.cells, arguments.sizes):
        width, state, rows = (int(number) for number in size.split("x"))
        frames = torch.randn(rows, arguments.positions, width, generator=torch.Generator().manual_seed(0))
        inputs = [frames.requires_grad_(), torch.ones(rows, arguments.positions, dtype=torch.bool)]
        compare(f"{cell} {size}", make_modules(cell, width, state), inputs, arguments.rounds)


def make_modules(cell: str, width: int, state: int) -> dict[str, TorchModule]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        body, more = ("outer_products", HEADS) if cell in GATES else (cell, "")
        gates = GATES.get(cell, "heads")
        path.write_text(SPEC.format(cell=body, width=width, state=state, more=more, gates=gates))
        spec = load_spec(path)
    loop, scan = (run_passes(begin(spec), after=name).graph for name in ("hoist", "linear_attention"))
    return {"loop": TorchModule(loop, seed=1), "scan": TorchModule(scan, seed=1)}


def compare(name: str, modules: dict[str, TorchModule], inputs: list[Tensor], rounds: int) -> None:
    times: dict[str, list[float]] = {form: [] for form in modules}
    results: dict[str, list[Tensor]] = {}
    for turn in range(rounds + 1):
        for form, module in modules.items():
            start = time.process_time()
            results[form] = run(module, inputs)
            if turn:
                times[form].append((time.process_time() - start) * 1e3)
    for form, values in times.items():
        print(f"{name:>20} {form}: {statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f})")
    ratio = statistics.median(times["loop"]) / statistics.median(times["scan"])
    pairs = zip(results["scan"], results["loop"], strict=True)
    error = max(((found - wanted).abs().max() / wanted.abs().max()).item() for found, wanted in pairs)
    print(f"{name:>20} ratio {ratio:.1f}, error {error:.1e}")


def run(module: TorchModule, inputs: list[Tensor]) -> list[Tensor]:
    """The result and the gradients of a forward and backward pass."""
    module.zero_grad()
    result = module(*inputs[: len(module.graph.inputs)])
    result.square().mean().backward()
    return [result.detach(), *(parameter.grad for parameter in module.parameters() if parameter.grad is not None)]


if __name__ == "__main__":
    main()
