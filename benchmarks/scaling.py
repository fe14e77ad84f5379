"""How decoding scales with cores: measured on those that are here, planned for those that are not.

    python -m benchmarks.scaling                                    # base in int8
    python -m benchmarks.scaling --model big --precision float32 --batch 1 32 --threads 1 2 --cores 4 8 16 32 64

ONNX Runtime's profiler gives the time of each operator on one thread. On more threads, an operator takes the part of
that time for which its busiest thread works, if each item of work goes to the first thread that is free; items are
those that the kernels make (runtime/kernels: project.cc, search_vocabulary.h, attend_queries.h). What is not divided
into items stays. The plan knows no waits, neither for memory nor for threads to wake, so it is a lower bound. The
measured rows show by how much it is off. The last column is the memory's speed that a step needs so that the plan can
hold: all weights once, and at most all keys and values, as if no cache kept any of them.

Randomly initialized weights, sources of 25 random tokens, beam 4.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, pairwise
from math import ceil, prod
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from benchmarks.decode.cases import MODELS, SOURCE_TOKENS
from benchmarks.decode.engines import fresh_weights, make_spec, write_engine
from benchmarks.decode.floor import plain_model, width_of
from benchmarks.step_profile import profile
from xformc.compiler.backends.onnx.graphs import all_graphs
from xformc.compiler.quantize.layouts import PANEL
from xformc.compiler.spec import Spec

KIB = 1024
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int16": 2, "int8": 1, "int4": 0.625}
"""The bytes of a weight; int4 has a scale of each 32 weights."""

TILE = 12
"""The rows of a tile with AVX-512."""

ATTENTION = ("Attend", "AttendCached")

FEW_PRODUCTS = 1 << 16
"""Attention with fewer is one item of work."""


@dataclass(frozen=True)
class Product:
    """A product: `rows` of `depth` numbers times weights in `panels` of 32 outputs, `times` in a search."""

    operator: str
    precision: str
    rows: int
    depth: int
    panels: int
    times: int

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.depth * self.panels * PANEL

    @property
    def weight_bytes(self) -> float:
        """The bytes of the weights."""
        return self.weights * BYTES[self.precision]

    def busiest(self, threads: int) -> float:
        """The part of the work that the busiest of so many threads has."""
        return busiest(self.items(threads), threads)

    def items(self, threads: int) -> list[int]:
        """The sizes of the items of work that the kernels make of it, on a machine with so many threads."""
        row_bytes = self.depth * (1 if self.precision in ("int8", "int4") else 2 if self.precision == "int16" else 4)
        if self.operator != "Project":
            blocks, chunks = ceil(self.panels * PANEL / 1024), ceil(self.rows * (1024 + PANEL) * 4 / (512 * KIB))
            chunks = min(ceil(self.rows / TILE), chunks)
            return shared(blocks, min(blocks, ceil(8 * threads / chunks))) * chunks
        if self.weight_bytes * max(self.rows, 16) < KIB * KIB:
            return [1]
        if self.rows >= threads * 16 * (2 if self.weights > 1 << 20 else 1):
            most = min(max(384 * KIB // row_bytes, 16), 64)
            return shared(self.rows, threads * ceil(self.rows / (threads * most)))
        cached, busy = ceil(self.rows * row_bytes / (384 * KIB)), ceil(2 * threads / self.panels)
        chunks = min(ceil(self.rows / TILE), max(cached, busy))
        return shared(self.panels, min(self.panels, ceil(6 * threads / chunks))) * chunks


def shared(things: int, groups: int) -> list[int]:
    """The sizes of so many groups of things, which are nearly equal."""
    return [after - before for before, after in pairwise(things * i // groups for i in range(groups + 1))]


def busiest(items: Sequence[int], threads: int) -> float:
    """The part of all work that the busiest thread has, if each item in turn goes to the first thread that is free."""
    loads = [0] * threads
    for item in items:
        heapreplace(loads, loads[0] + item)
    return max(loads) / sum(items)


def products_of(model: onnx.ModelProto, batch: int, beam: int, length: int) -> list[Product]:
    """The products with weights of a search: those before it once, those of a step for each token."""
    phases = [[node for node in graph.node if width_of(node, model)] for _, graph in all_graphs(model.graph)]
    before, *_, step = [nodes for nodes in phases if nodes]
    return [
        product
        for nodes, rows, times in ((before, batch * SOURCE_TOKENS, 1), (step, batch * beam, length))
        for product in _products(nodes, model, rows, times)
    ]


def _products(nodes: Sequence[Any], model: onnx.ModelProto, rows: int, times: int) -> Iterator[Product]:
    for node in nodes:
        given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        depth = width_of(node, model)
        assert depth is not None
        if node.op_type == "Project":
            ends = list(accumulate(given["ranks"], initial=0))
            outputs = [prod(given["sizes"][begin:end]) for begin, end in pairwise(ends)]
            precision = given["precision"].decode()
        else:
            outputs = [given["vocabulary"]]
            precision = "int16" if node.op_type == "ScreenCandidates" else given["precision"].decode()
        yield Product(node.op_type, precision, rows, depth, sum(ceil(one / PANEL) for one in outputs), times)


def planned(once: Counter[str], products: Sequence[Product], spec: Spec, batch: int, beam: int, threads: int) -> float:
    """The time on so many threads of operators that take `once` on one thread, in its unit."""
    total, units = 0.0, batch * int(spec.sizes["heads"])
    multiplied = batch * beam * SOURCE_TOKENS * int(spec.sizes["d_model"])
    for operator, time in once.items():
        own = [product for product in products if product.operator == operator]
        if own:
            works = [product.times * product.rows * product.weights for product in own]
            part = sum(work * one.busiest(threads) for work, one in zip(works, own, strict=True)) / sum(works)
        elif operator in ATTENTION and multiplied >= FEW_PRODUCTS:
            part = busiest(shared(units, min(units, max(8, batch, 2 * threads))), threads)
        else:
            part = 1.0
        total += part * time
    return total


def bytes_read(products: Sequence[Product], spec: Spec, arguments: argparse.Namespace, batch: int) -> float:
    """The most bytes that a step reads: its weights, and the keys and values of the source and of half the output."""
    weights = sum(product.weight_bytes for product in products if product.times > 1)
    positions = batch * (SOURCE_TOKENS + arguments.beam * arguments.length / 2)
    cache = 4 if arguments.precision == "float32" else 2
    return weights + positions * 2 * int(spec.sizes["d_model"]) * int(spec.sizes["layers"]) * cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="base")
    parser.add_argument("--precision", default="int8", choices=("float32", "int8"))
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 8, 32, 128))
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--threads", nargs="+", type=int, default=(1, 2), help="those that are measured")
    parser.add_argument("--cores", nargs="+", type=int, default=(4, 8, 16, 32, 64), help="those that are planned")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        spec = make_spec(arguments.model, Path(name))
        write_engine(spec, fresh_weights(spec, "native"), arguments.precision, "native", Path(name) / "engine")
        model = plain_model(Path(name) / "engine")
    print(f"{arguments.model}, {arguments.precision}, beam {arguments.beam}, {arguments.length} tokens; ms per step")
    print(f"{'batch':>5} {'cores':>5} {'measured':>9} {'planned':>9} {'speedup':>8} {'GB/s':>7}")
    for batch in arguments.batch:
        table(model, spec, batch, arguments)


def table(model: onnx.ModelProto, spec: Spec, batch: int, arguments: argparse.Namespace) -> None:
    """Print the rows of a batch size."""
    products = products_of(model, batch, arguments.beam, arguments.length)
    size, once = bytes_read(products, spec, arguments, batch), Counter[str]()
    for threads in sorted({1, *arguments.threads, *arguments.cores}):
        measured = ""
        if threads == 1 or threads in arguments.threads:
            steps, times, _ = profile("native", batch, argparse.Namespace(**{**vars(arguments), "threads": threads}))
            measured = f"{sum(times.values()) / steps / 1000:9.2f}"
            if threads == 1:
                once = Counter({operator: time / steps / 1000 for operator, time in times.items()})
        time = planned(once, products, spec, batch, arguments.beam, threads)
        print(
            f"{batch:5} {threads:5} {measured:>9} {time:9.2f} {once.total() / time:8.1f} {size / time / 1e6:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
