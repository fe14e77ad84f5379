"""A mixture of experts: computing the chosen experts beside computing all of them, in PyTorch and ONNX Runtime.

python -m benchmarks.experts [--width 256] [--experts 8] [--chosen 2] [--rows 1 16 512] [--rounds 15] [--train]

The model is one mixture of feed-forward networks with relu, from vectors of `width` to vectors of `width`, with d_ff of
4 * width. Both have the same number of weights. The two take turns in one process, and the first turn does not count.
Times are CPU times of a forward pass, with --train of a forward and backward pass: median, lowest and highest. MiB is
how much one forward pass of PyTorch raises the peak memory of a new process.
"""

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from xformc.compiler.backends.onnx.initializers import Initializers, save_model
from xformc.compiler.backends.onnx.models import forward_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.runtime.session import open_model

SPEC = """\
task: tagging
sizes: {{d_model: {width}, d_ff: 4 * d_model, experts: {experts}, chosen: {chosen}}}
inputs: {{frames: {{vectors: d_model}}}}
choices: {{activation: relu}}
model: {{states: {{from: frames, do: [{block}]}}}}
{blocks}
"""
DENSE = """\
blocks:
  dense_experts:
    do:
      inner: {linear: {to: [experts, d_ff]}}
      active: activation
      gate: {linear: {from: x, to: experts, bias: false}}
      top: {keep_top: {count: chosen, over: experts}}
      share: {softmax: experts}
      weighted: {times: {from: active, by: share}}
      output: {linear: {from: weighted, over: [experts, d_ff], to: d_model}}
"""
FORMS = {"all experts": ("dense_experts", DENSE), "chosen experts": ("sparse_experts", "")}
Run = Callable[[torch.Tensor], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--chosen", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 512])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--train", action="store_true")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, width {arguments.width}")
    graphs = {name: make_graph(name, arguments) for name in FORMS}
    runs = {"torch": {name: torch_run(graph, train=arguments.train) for name, graph in graphs.items()}}
    if not arguments.train:
        runs["onnx"] = {name: onnx_run(graph) for name, graph in graphs.items()}
    for backend, rows in itertools.product(runs, sorted(arguments.rows)):
        shape: tuple[int, ...] = (1, rows, arguments.width)
        compare(f"{backend} {rows}", runs[backend], torch.randn(shape), arguments.rounds)
    for name, graph in graphs.items():
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(f"{name}: {pool.apply(peak, (graph, arguments.rows[-1], arguments.width)):.0f} MiB")


def make_graph(name: str, arguments: argparse.Namespace) -> Graph:
    block, blocks = FORMS[name]
    sizes = {"width": arguments.width, "experts": arguments.experts, "chosen": arguments.chosen}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        path.write_text(SPEC.format(block=block, blocks=blocks, **sizes))
        return run_passes(begin(load_spec(path), "portable"), after="inference").graph


def torch_run(graph: Graph, *, train: bool) -> Run:
    module = TorchModule(graph, seed=1)

    def run(x: torch.Tensor) -> None:
        with torch.set_grad_enabled(train):
            result = module(x, *masks(graph, x))
            if train:
                module.zero_grad()
                result.sum().backward()

    return run


def onnx_run(graph: Graph) -> Run:
    folder = Path(tempfile.mkdtemp())
    initializers = Initializers(TorchModule(graph, seed=1).arrays())
    save_model(forward_model(graph, initializers, target="cpu"), initializers, folder)
    session = open_model(folder / "model.onnx", target="cpu")
    names = [value.name for value in graph.inputs]
    return lambda x: session.run(
        None, {name: given.numpy() for name, given in zip(names, [x, *masks(graph, x)], strict=True)}
    )


def masks(graph: Graph, x: torch.Tensor) -> list[torch.Tensor]:
    """The mask of the input, if the graph has it: all true."""
    return [torch.ones(x.shape[:2], dtype=torch.bool)] * (len(graph.inputs) - 1)


def compare(name: str, runs: dict[str, Run], x: torch.Tensor, rounds: int) -> None:
    times: dict[str, list[float]] = {form: [] for form in runs}
    for turn in range(rounds + 1):
        for form, run in runs.items():
            start = time.process_time()
            run(x)
            if turn:
                times[form].append((time.process_time() - start) * 1e3)
    for form, values in times.items():
        print(f"{name:>12} {form}: {statistics.median(values):8.2f} ms ({min(values):.2f} to {max(values):.2f})")
    first, last = (statistics.median(values) for values in times.values())
    print(f"{name:>12} ratio {first / last:.2f}")


def peak(graph: Graph, rows: int, width: int) -> float:
    """How much a forward pass raises the peak memory, in MiB."""
    run, x = torch_run(graph, train=False), torch.randn(1, rows, width)
    run(x[:, :1])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present memory
    before = memory_peak()
    run(x)
    return memory_peak() - before


def memory_peak() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


if __name__ == "__main__":
    main()
