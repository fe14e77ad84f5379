"""Keeps values in 16 bits where a model would widen them only to narrow them again.

Each product in 16 bits is written with conversions around it, which are nodes, and on a GPU kernels, of their own. What
lies between a widened result and the next narrowing may stay in 16 bits if that rounds nothing else: moved axes, ReLU,
and a constant that is added or multiplied, which is then rounded to 16 bits itself, in float16.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from xformc.compiler.backends.onnx.graphs import inner_graphs, needed_names, taken_names
from xformc.compiler.quantize.stored import Floats

_SMALLEST, _LARGEST = 2.0**-14, 65504.0
"""The normal numbers of float16."""

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze"})
_KEPT = _MOVES | {"Identity", "Gemm", "MatMul", "Add", "Mul", "Relu"}
"""Operators whose result has the type of their first input."""


def narrowed(
    nodes: Sequence[onnx.NodeProto],
    results: Collection[str],
    constants: Callable[[str], Floats | None],
    fresh: Callable[[str], str],
) -> list[onnx.NodeProto]:
    """The nodes of a scope without conversions that undo each other, and without those that nothing needs.

    `results` are the outputs of the scope; `constants` gives the numbers of a parameter or constant in float32, and
    None for other names; `fresh` makes new names.
    """
    inside = (name for node in nodes for graph in inner_graphs(node) for name in taken_names(graph))
    return _needed(_Narrowing(nodes, frozenset((*results, *inside)), constants, fresh).run(), results)


class _Narrowing:
    """Rewrites the nodes of a scope, in order."""

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        named: frozenset[str],
        constants: Callable[[str], Floats | None],
        fresh: Callable[[str], str],
    ) -> None:
        """`named`: the names that must stay."""
        self.given, self.named, self.constants, self.fresh = nodes, named, constants, fresh
        self.nodes = list[onnx.NodeProto]()
        self.producers = dict[str, onnx.NodeProto]()
        self.halves = dict[str, int]()
        self.renamed = dict[str, str]()
        self.made = dict[tuple[str, int], str | None]()

    def run(self) -> list[onnx.NodeProto]:
        """The new nodes."""
        for given in self.given:
            node = onnx.NodeProto()
            node.CopyFrom(given)
            for index, name in enumerate(node.input):
                node.input[index] = self.renamed.get(name, name)
            to = _target(node)
            small = self.small(node.input[0], to) if to is not None and to in _HALVES else None
            if small is None:
                self.add(node)
            elif node.output[0] in self.named:
                self.add(helper.make_node("Identity", [small], node.output, node.name))
            else:
                self.renamed[node.output[0]] = small
        return self.nodes

    def add(self, node: onnx.NodeProto) -> str:
        """Add a node and return its first output."""
        self.nodes.append(node)
        self.producers.update(dict.fromkeys(node.output, node))
        kind = _target(node) if node.op_type == "Cast" else None
        if node.op_type in _KEPT and node.input:
            kind = self.halves.get(node.input[0])
        if kind is not None and kind in _HALVES:
            self.halves[node.output[0]] = kind
        return node.output[0]

    def small(self, name: str, to: int) -> str | None:
        """The value in 16 bits, if it need not be narrowed; None otherwise."""
        if (name, to) not in self.made:
            self.made[name, to] = self._small(name, to)
        return self.made[name, to]

    def _small(self, name: str, to: int) -> str | None:
        node = self.producers.get(name)
        if node is None:
            return None
        if _target(node) == TensorProto.FLOAT and self.halves.get(node.input[0]) == to:
            return node.input[0]
        if node.op_type in _MOVES or (node.op_type == "Relu" and to == TensorProto.FLOAT16):
            inner = self.small(node.input[0], to)
            return None if inner is None else self._again(node, inner, *node.input[1:])
        if node.op_type in ("Add", "Mul") and to == TensorProto.FLOAT16:
            first, second = node.input
            inner = self.small(first, to) if self._fits(second) else None
            if inner is not None:
                cast = helper.make_node("Cast", [second], [self.fresh("Cast")], to=to)
                return self._again(node, inner, self.add(cast))
        return None

    def _fits(self, name: str) -> bool:
        """Whether it is a constant whose numbers float16 has, to its precision: none is too large or too small."""
        found = self.constants(name)
        if found is None:
            return False
        sizes = np.abs(found[found != 0])
        return bool(((sizes >= _SMALLEST) & (sizes <= _LARGEST)).all())

    def _again(self, node: onnx.NodeProto, *inputs: str) -> str:
        """Write a node once more, in 16 bits."""
        again = onnx.NodeProto()
        again.CopyFrom(node)
        del again.input[:], again.output[:]
        again.input.extend(inputs)
        again.output.append(self.fresh(node.op_type))
        again.name = f"{node.name}/{again.output[0]}"
        return self.add(again)


def _target(node: onnx.NodeProto) -> int | None:
    """The type that a Cast converts to; None for other nodes."""
    if node.op_type != "Cast":
        return None
    return next(attribute.i for attribute in node.attribute if attribute.name == "to")


def _needed(nodes: Sequence[onnx.NodeProto], results: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes on which the results depend, in order."""
    needed, kept = set(results), list[onnx.NodeProto]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed |= needed_names(node)
    return kept[::-1]
