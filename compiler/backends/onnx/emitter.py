"""The ONNX backend: an emitter that applies the `to_onnx` rules to graphs, in a tree of scopes."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from xformc.compiler import ops
from xformc.compiler.backends.onnx.graphs import all_graphs, used
from xformc.compiler.backends.onnx.initializers import Initializers
from xformc.compiler.backends.onnx.narrowing import narrowed
from xformc.compiler.backends.onnx.sequences import join
from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.rules import Operand, to_onnx
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.compiler.quantize.stored import Floats
from xformc.format.operators import DOMAIN, OPERATORS
from xformc.format.targets import TRAITS, Target

assert ops, "importing the ops fills the rule tables"

VERSIONS = {"": 23, "com.microsoft": 1, DOMAIN: OPERATORS}
"""The version of each domain of operators."""
DTYPES: dict[DType, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
    "bool": TensorProto.BOOL,
}


_NUMPY = {bool: np.bool_, int: np.int64, float: np.float32}


class Emitter:
    """Writes the nodes of one scope: the model, or the body of a loop. Constants are in the outermost scope.

    A node that computes a value of a graph is named `VALUE:OUTPUT`, so that errors and profiles can name the value.
    """

    def __init__(
        self,
        weights: Initializers,
        *,
        target: Target = "portable",
        parent: "Emitter | None" = None,
        keeps: frozenset[str] = frozenset(),
    ) -> None:
        """`keeps`: the axes with the same sizes as in the parent."""
        self.weights = weights
        self.target: Target = target
        self.fused = TRAITS[target].contrib
        self.typed = TRAITS[target].typed
        self.scatters = TRAITS[target].in_place
        self.emulated = weights.emulated
        self.parent = parent
        self.keeps = keeps
        self.nodes: list[onnx.NodeProto] = []
        self._values: dict[str, str] = {}
        self._sizes: dict[str, tuple[str, int]] = {}
        self._once: dict[str, str] = {}
        self._root: Emitter = self if parent is None else parent._root
        if parent is None:
            self._count = 0
            self._origin = ""
            self._constants: dict[bytes, str] = {}
            self.initializers: list[onnx.TensorProto] = []

    def fresh(self, hint: str) -> str:
        """A unique name; names of inputs have no dot."""
        self._root._count += 1
        return f"{hint}.{self._root._count}"

    def op(self, kind: str, *inputs: Operand, domain: str = "", name: str | None = None, **attributes: Any) -> str:
        """Write one node with one output and return the output's name."""
        output, names = name or self.fresh(kind), [self.operand(value) for value in inputs]
        self._write(kind, names, [output], domain, attributes)
        return output

    def ops(self, kind: str, count: int, *inputs: Operand, domain: str = "", **attributes: Any) -> tuple[str, ...]:
        """Write one node with `count` outputs and return their names."""
        outputs, names = tuple(self.fresh(kind) for _ in range(count)), [self.operand(value) for value in inputs]
        self._write(kind, names, list(outputs), domain, attributes)
        return outputs

    def default(self, name: str, value: float | tuple[int, ...]) -> Type:
        """Add an input of the model with a default value: a scalar, int64 or float32 as the value, or integers."""
        array = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        self._root.initializers.append(onnx.numpy_helper.from_array(array, name))
        axes = (Axis(f"{name}s", array.size),) if array.ndim else ()
        return Type("float32" if isinstance(value, float) else "int64", axes)

    def default_rows(self, name: str, value: float | tuple[int, ...]) -> Type:
        """Add an input with a default value for all rows of a batch: numbers [rows], or integers [rows, any]."""
        array = np.array([value], np.float32 if isinstance(value, float) else np.int64)
        self._root.initializers.append(onnx.numpy_helper.from_array(array, name))
        axes = (Axis(f"{name}_rows"), Axis(f"{name}_length"))[: array.ndim]
        return Type("float32" if isinstance(value, float) else "int64", axes)

    def default_tokens(self, name: str) -> Type:
        """Add an input of tokens [rows, length] of the model, by default none."""
        self._root.initializers.append(onnx.numpy_helper.from_array(np.zeros((1, 0), np.int64), name))
        return Type("int64", (Axis(f"{name}_rows"), Axis(f"{name}_length")))

    def default_phrases(self, name: str) -> Type:
        """Add an input of lists of tokens [rows, lists, length] of the model, by default none."""
        self._root.initializers.append(onnx.numpy_helper.from_array(np.zeros((1, 0, 0), np.int64), name))
        return Type("int64", tuple(Axis(f"{name}_{axis}") for axis in ("rows", "lists", "length")))

    def default_automaton(self, names: tuple[str, str, str], vocabulary: int) -> dict[str, Type]:
        """Add the inputs of an automaton, by default none: the states after each state and token, [states, vocabulary],
        the needs of the states, [states], and the first state of each row, [rows]."""
        states, first = Axis("automaton_states"), Axis(f"{names[2]}_rows")
        types = (Type("int32", (states, Axis("", vocabulary))), Type("int64", (states,)), Type("int64", (first,)))
        values = (np.zeros((0, vocabulary), np.int32), np.zeros(0, np.int64), np.array([-1], np.int64))
        for name, value in zip(names, values, strict=True):
            self._root.initializers.append(onnx.numpy_helper.from_array(value, name))
        return dict(zip(names, types, strict=True))

    def once(self, key: str, make: Callable[[], str]) -> str:
        """Let `make` write, once per key in this scope."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def bind(self, value: Value, name: str) -> None:
        """Record the ONNX value that holds a value of the graph; the run-time sizes of its axes are read from it."""
        self._values[value.name] = name
        for index, axis in enumerate(value.type.axes):
            if axis.size is None and axis.name not in self.keeps:
                self._sizes.setdefault(axis.name, (name, index))

    def name_of(self, value: Value) -> str:
        """The ONNX value that holds a value of the graph, here or in an enclosing scope."""
        scope: Emitter | None = self
        while scope is not None:
            if value.name in scope._values:
                return scope._values[value.name]
            scope = scope.parent
        raise KeyError(value.name)

    def shape(self, axes: Sequence[Axis]) -> str:
        """The sizes of the axes as an int64 vector."""
        return self.merged(*((axis,) for axis in axes))

    def merged(self, *groups: Sequence[Axis]) -> str:
        """An int64 vector with one element per group: the product of the sizes of its axes."""
        symbols = [axis.name for group in groups for axis in group if axis.size is None]
        scope = self._scope_of(symbols)
        key = "sizes " + " ".join("*".join(str(axis) for axis in group) for group in groups)
        return scope.once(key, lambda: scope._write_sizes(groups))

    def graph(self, graph: Graph, inputs: Mapping[str, str]) -> tuple[str, ...]:
        """Write all nodes of a graph; `inputs` has the ONNX names of its inputs. Return the names of its outputs."""
        for parameter in graph.parameters:
            self._root._values[parameter.name] = parameter.name
            self.weights.use(parameter)
        for value in graph.inputs:
            self.bind(value, inputs[value.name])
        outer = self._root._origin
        for node in graph.nodes:
            self._root._origin = node.outputs[0].name
            rule = to_onnx.of(node.op, node.place)
            results = rule(node.op, node, self, tuple(self.name_of(value) for value in node.inputs))
            for value, name in zip(node.outputs, results, strict=True):
                self.bind(value, name)
        self._root._origin = outer
        return tuple(self.name_of(value) for value in graph.outputs)

    def loop(
        self,
        trips: str,
        carried: Sequence[tuple[Type, Operand]],
        body: Callable[["Emitter", str, list[str]], tuple[str, list[str], list[tuple[Type, str]]]],
        keeps: frozenset[str] = frozenset(),
    ) -> tuple[str, ...]:
        """Write a Loop. `body(scope, iteration, carried)` returns the condition, the new carried values and the values
        to collect. Return the last carried values and the collected ones, stacked along a new first axis. `keeps` are
        the axes with the same sizes inside and outside the loop."""
        scope = Emitter(self.weights, target=self.target, parent=self, keeps=keeps)
        iteration, alive = scope.fresh("iteration"), scope.fresh("alive")
        entering = [scope.fresh("carried") for _ in carried]
        condition_out, leaving, collected = body(scope, iteration, entering)
        types = [Type("bool"), *(type for type, _ in carried), *(type for type, _ in collected)]
        results = scope.own([condition_out, *leaving, *(name for _, name in collected)])
        graph = helper.make_graph(
            scope.finished(results),
            "body",
            [_info(iteration, Type("int64")), _info(alive, Type("bool"))]
            + [_info(name, type, named=False) for name, (type, _) in zip(entering, carried, strict=True)],
            [_info(name, type, named=False) for name, type in zip(results, types, strict=True)],
        )
        count = len(carried) + len(collected)
        return self.ops("Loop", count, trips, True, *(value for _, value in carried), body=graph)

    def either(self, condition: str, then: Callable[["Emitter"], str], otherwise: Callable[["Emitter"], str]) -> str:
        """Write an If with a float32 result; each branch is written into its own scope."""
        return self.choose(condition, lambda scope: (then(scope),), lambda scope: (otherwise(scope),), ("float32",))[0]

    def choose(
        self,
        condition: str,
        then: Callable[["Emitter"], tuple[str, ...]],
        otherwise: Callable[["Emitter"], tuple[str, ...]],
        dtypes: tuple[DType, ...],
    ) -> tuple[str, ...]:
        """Write an If with results of these types; each branch is written into its own scope."""
        first, second = self._branch(then, dtypes), self._branch(otherwise, dtypes)
        return self.ops("If", len(dtypes), condition, then_branch=first, else_branch=second)

    def _branch(self, write: Callable[["Emitter"], tuple[str, ...]], dtypes: tuple[DType, ...]) -> onnx.GraphProto:
        scope = Emitter(self.weights, target=self.target, parent=self)
        results = scope.own(write(scope))
        pairs = zip(results, dtypes, strict=True)
        infos = [helper.make_tensor_value_info(name, DTYPES[dtype], None) for name, dtype in pairs]
        return helper.make_graph(used(scope.nodes, results), "branch", [], infos)

    def own(self, names: Sequence[str]) -> list[str]:
        """Copy values if needed, so that each name is made in this scope and occurs once, as results of a body must."""
        made = {output for node in self.nodes for output in node.output}
        results: list[str] = []
        for name in names:
            results.append(name if name in made and name not in results else self.op("Identity", name))
        return results

    def finished(self, results: Sequence[str]) -> list[onnx.NodeProto]:
        """The nodes of this scope, whose outputs are `results`."""
        nodes = used(self.nodes, results)
        return narrowed(nodes, results, self._numbers_of, self.fresh) if self.typed else nodes

    def _numbers_of(self, name: str) -> Floats | None:
        """The numbers of a constant or parameter in float32; None for other values."""
        for tensor in self._root.initializers:
            if tensor.name == name and tensor.data_type == TensorProto.FLOAT:
                return onnx.numpy_helper.to_array(tensor)
        return self.weights.numbers(name)

    def flat(self, name: str, *shape: int) -> str:
        """A parameter as a matrix or vector of this shape: stored in it if possible, otherwise reshaped by a node."""
        return name if self.weights.flatten(name, shape) else self.op("Reshape", name, shape)

    def weight(self, name: str, layout: LayoutName, new: int, width: int) -> Weight:
        """A parameter as a matrix [new, width] in its number format and this layout. Layout rows becomes blocks if the
        format has blocks and the model may use ONNX Runtime's own operators."""
        blocks = layout == "rows" and self.fused and "blocks" in self.weights.format_of(name).layouts
        return self.weights.weight(name, "blocks" if blocks else layout, new, width)

    def outermost(self, key: str, make: Callable[["Emitter"], str]) -> str:
        """Let `make` write into the outermost scope, once per key, so that no loop iteration repeats it."""
        return self._root.once(key, lambda: make(self._root))

    def operand(self, value: Operand) -> str:
        """The name of an input; a constant is added to the model once and gets a name."""
        if isinstance(value, str):
            return value
        first = value if isinstance(value, int | float) else next(iter(value), 0)
        array = np.array(value, _NUMPY[type(first)])
        key = array.dtype.str.encode() + repr(array.shape).encode() + array.tobytes()
        root = self._root
        if key not in root._constants:
            root._constants[key] = self.fresh("constant")
            root.initializers.append(onnx.numpy_helper.from_array(array, root._constants[key]))
        return root._constants[key]

    def _write(self, kind: str, inputs: list[str], outputs: list[str], domain: str, attributes: dict[str, Any]) -> None:
        origin = self._root._origin
        name = f"{origin}:{outputs[0]}" if origin else outputs[0]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes))

    def _scope_of(self, symbols: Sequence[str]) -> "Emitter":
        """The innermost scope that knows the size of one of the symbols; the others are known there as well."""
        scope = self
        while scope.parent is not None and not any(name in scope._sizes for name in symbols):
            scope = scope.parent
        return scope

    def _size(self, symbol: str) -> str:
        scope = self
        while symbol not in scope._sizes:
            assert scope.parent is not None, f"the size of axis {symbol} is unknown"
            scope = scope.parent
        name, index = scope._sizes[symbol]
        return scope.once(f"size {symbol}", lambda: scope.op("Shape", name, start=index, end=index + 1))

    def _write_sizes(self, groups: Sequence[Sequence[Axis]]) -> str:
        parts = [self._product(group) for group in groups]
        if not parts:
            return self.operand(())
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def _product(self, group: Sequence[Axis]) -> str:
        known = prod(axis.size for axis in group if axis.size is not None)
        symbols = [self._size(axis.name) for axis in group if axis.size is None]
        if not symbols:
            return self.operand([known])
        result = symbols[0]
        for other in symbols[1:]:
            result = self.op("Mul", result, other)
        return result if known == 1 else self.op("Mul", result, [known])


def model(
    emitter: Emitter, name: str, inputs: Sequence[tuple[str, Type]], outputs: Sequence[tuple[str, Type]]
) -> onnx.ModelProto:
    """The finished model without weights; an input that is also an initializer has it as its default."""
    graph = helper.make_graph(
        emitter.finished([item for item, _ in outputs]),
        name,
        [_info(item, type) for item, type in inputs],
        [_info(item, type) for item, type in outputs],
        emitter.initializers,
    )
    if TRAITS[emitter.target].kernels:
        join(graph, emitter.weights.types)
    domains = {node.domain for _, inner in all_graphs(graph) for node in inner.node} | {""}
    imports = [helper.make_opsetid(domain, VERSIONS[domain]) for domain in sorted(domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, producer_name="xformc")


def _info(name: str, type: Type, *, named: bool = True) -> onnx.ValueInfoProto:
    symbols = [axis.name if named else None for axis in type.axes]
    dims = [symbol if axis.size is None else axis.size for axis, symbol in zip(type.axes, symbols, strict=True)]
    return helper.make_tensor_value_info(name, DTYPES[type.dtype], dims)
