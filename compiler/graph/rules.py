"""Rule tables: what one op does under one transformation. A missing entry is an error that names both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost
from xformc.compiler.graph.graph import Graph, Node, Op, Value
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.errors import UserError

R = TypeVar("R", bound=Callable[..., object])


class RuleError(UserError):
    """An op was given what its rules do not allow."""


class Table(Generic[R]):
    """The entries of one transformation, by op. Filled at import, read-only afterwards."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._entries: dict[str, R] = {}

    def rule(self, op: type[Op]) -> Callable[[R], R]:
        """Decorator: enter the function as this table's rule for `op`."""

        def enter(function: R) -> R:
            assert op.kind not in self._entries, f"{self.name} already has a rule for {op.kind}"
            self._entries[op.kind] = function
            return function

        return enter

    def has(self, op: Op) -> bool:
        """Whether there is an entry for this op."""
        return op.kind in self._entries

    def kinds(self) -> frozenset[str]:
        """The kinds of op that have an entry."""
        return frozenset(self._entries)

    def of(self, op: Op, place: str | None = None) -> R:
        """The entry for this op. Raises: RuleError naming op and table where there is none."""
        if op.kind not in self._entries:
            raise RuleError(f"op '{op.kind}' has no rule in table '{self.name}'", place=place)
        return self._entries[op.kind]


class TorchNamespace(Protocol):
    """What a `to_torch` rule may use: the torch module itself, handed in so that op files need not import it."""

    torch: Any
    functional: Any
    linear_cross_entropy: Callable[..., Any]
    dropout: Callable[..., Any]

    def linear(self, weight: str) -> Callable[..., Any]:
        """The linear map of the parameter of this name: of (rows, matrix, bias or None)."""
        ...

    def function(self, graph: Graph) -> Callable[..., Any]:
        """The graph as a function of its inputs in order, to a tuple of its outputs."""
        ...

    @property
    def training(self) -> bool:
        """Whether the module is training, so that dropout acts."""
        ...


Operand = str | bool | int | float | Sequence[int] | Sequence[float]
"""An input of an ONNX node: the name of a value, or a constant (a number without axes, or a vector of them)."""


Turn = tuple[str, list[str], list[tuple[Type, str]]]
"""What the body of a loop gives: whether to go on, the new carried values, and what is collected."""


class OnnxEmitter(Protocol):
    """What a `to_onnx` rule may use to write ONNX nodes; results are names of ONNX values.

    fused: with ONNX Runtime's own operators. typed: products are computed in the numbers of their weights. emulated:
    such products in float32, of rounded factors and rounded again, where there are no operators for these numbers.
    """

    fused: bool
    typed: bool
    emulated: bool

    def op(self, kind: str, *inputs: Operand, domain: str = "", **attributes: Any) -> str:
        """Write one node with one output."""
        ...

    def ops(self, kind: str, count: int, *inputs: Operand, domain: str = "", **attributes: Any) -> tuple[str, ...]:
        """Write one node with `count` outputs."""
        ...

    def operand(self, value: Operand) -> str:
        """The name of an input: itself, or that of the constant."""
        ...

    def flat(self, name: str, *shape: int) -> str:
        """A parameter as a matrix or vector of this shape."""
        ...

    def weight(self, name: str, layout: LayoutName, new: int, width: int) -> Weight:
        """A parameter as a matrix [new, width] in its number format and this layout: rows become blocks if it has some
        and the model may have ONNX Runtime's own operators."""
        ...

    def outermost(self, key: str, make: Callable[["OnnxEmitter"], str]) -> str:
        """What `make` writes into the outermost scope, once for this key: what no turn of a loop needs to repeat."""
        ...

    def either(
        self, condition: str, then: Callable[["OnnxEmitter"], str], otherwise: Callable[["OnnxEmitter"], str]
    ) -> str:
        """Write an If: the float32 value that one of the two writes, each into a scope of its own."""
        ...

    def shape(self, axes: Sequence[Axis]) -> str:
        """The run-time sizes of the axes as an int64 vector."""
        ...

    def merged(self, *groups: Sequence[Axis]) -> str:
        """A vector with one number for each group: the product of the sizes of its axes."""
        ...

    def once(self, key: str, make: Callable[[], str]) -> str:
        """What `make` writes, written only once in a scope for this key."""
        ...

    def bind(self, value: Value, name: str) -> None:
        """Say which ONNX value holds a value of a graph."""
        ...

    def name_of(self, value: Value) -> str:
        """The ONNX value that holds a value of a graph."""
        ...

    def graph(self, graph: Graph, inputs: Mapping[str, str]) -> tuple[str, ...]:
        """Write all nodes of a graph and return the names of its outputs."""
        ...

    def loop(
        self,
        trips: str,
        carried: Sequence[tuple[Type, Operand]],
        body: Callable[..., Turn],
        keeps: frozenset[str] = frozenset(),
    ) -> tuple[str, ...]:
        """Write a Loop, without bound where `trips` is "", and return its last carried values and what it collects.

        `body(scope, iteration, carried)` writes into a scope of its own; `keeps` are the axes whose sizes are the same
        inside and outside.
        """
        ...


class Stepper(Protocol):
    """What a `to_step` rule may use: it sees the node of the training graph and writes nodes of the step graph.

    Where states are `fixed`, they do not grow: a cache has room for every position that there will be.
    """

    time: str
    fixed: bool

    def value(self, value: Value) -> Value:
        """The step's counterpart of a value of the training graph."""
        ...

    def carries_time(self, value: Value) -> bool:
        """Whether the value of the training graph has the time axis."""
        ...

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str) -> Value:
        """Write a node of the step graph."""
        ...

    def state(self, name: str, type: Type, initial: Value | None = None) -> Value:
        """Declare a state that before the first step is `initial`, a value without time, or else zero (or empty)."""
        ...

    def carry(self, state: Value, new: Value) -> None:
        """Say what the state is after this step."""
        ...

    def position(self) -> Value:
        """The index of the token of this step: int64, no axes."""
        ...

    def places(self) -> Value:
        """The positions that fixed caches have room for, 0, 1, 2, ..: int64 [room]."""
        ...

    def refuse(self, reason: str, hint: str | None = None) -> RuleError:
        """The error for a node that cannot be decoded step by step; the caller raises it."""
        ...


Hidden = Literal["open", "masked", "zero"]
"""What a value over queries and keys holds where the key comes after the query: anything, MASKED, or zero."""

TypesRule = Callable[[Any, tuple[Type, ...]], tuple[Type, ...]]
MixesRule = Callable[[Any, Node], frozenset[str]]
TorchRule = Callable[[Any, Node, TorchNamespace], Callable[..., Any]]
OnnxRule = Callable[[Any, Node, OnnxEmitter, tuple[str, ...]], tuple[str, ...]]
StepRule = Callable[[Any, Node, Stepper], tuple[Value, ...]]
CostRule = Callable[[Any, Node], Cost]

HiddenRule = Callable[[Any, Node, tuple[Hidden, ...], frozenset[str]], Hidden]

types: Table[TypesRule] = Table("types")
mixes: Table[MixesRule] = Table("mixes")
to_torch: Table[TorchRule] = Table("to_torch")
to_onnx: Table[OnnxRule] = Table("to_onnx")
to_step: Table[StepRule] = Table("to_step")
cost: Table[CostRule] = Table("cost")
hidden: Table[HiddenRule] = Table("hidden")
"""What becomes of keys that come later, given what the inputs hold there and the axes of keys. No entry: "open"."""


def infer_types(op: Op, inputs: tuple[Type, ...], place: str | None = None) -> tuple[Type, ...]:
    """The types of an op's results. Raises: RuleError, with the place in the spec, for inputs it cannot take."""
    try:
        return types.of(op, place)(op, inputs)
    except RuleError as error:
        raise RuleError(
            f"{op.kind}: {error.message}" if not error.place else error.message,
            hint=error.hint,
            place=error.place or place,
        ) from None


def require(condition: bool, message: str) -> None:
    """Raise RuleError(message) unless the condition holds; for the guards of `types` rules."""
    if not condition:
        raise RuleError(message)


def cost_of(node: Node) -> Cost:
    """What this node costs. Raises: RuleError where its op does not say."""
    return cost.of(node.op, node.place)(node.op, node)


def mixes_nothing(op: Op, node: Node) -> frozenset[str]:
    """The `mixes` rule of every op that works on each position alone."""
    return frozenset()


def mixed_axes(node: Node) -> frozenset[str]:
    """The axes whose positions this node lets see each other; all its other axes are carried through."""
    return mixes.of(node.op, node.place)(node.op, node)
