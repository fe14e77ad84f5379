"""Rule tables: one rule per op and transformation. A missing rule is an error that names both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.cost import Cost
from xformc.compiler.graph.graph import Graph, Node, Op, Value
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.errors import UserError

R = TypeVar("R", bound=Callable[..., object])


class RuleError(UserError):
    """The inputs of an op break its rules."""


class Table(Generic[R]):
    """The rules of one transformation, by op. Filled at import, read-only afterwards."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._entries: dict[str, R] = {}

    def rule(self, op: type[Op]) -> Callable[[R], R]:
        """Decorator: register the function as this table's rule for `op`."""

        def enter(function: R) -> R:
            assert op.kind not in self._entries, f"{self.name} already has a rule for {op.kind}"
            self._entries[op.kind] = function
            return function

        return enter

    def has(self, op: Op) -> bool:
        """Whether there is a rule for this op."""
        return op.kind in self._entries

    def kinds(self) -> frozenset[str]:
        """The kinds of op that have a rule."""
        return frozenset(self._entries)

    def of(self, op: Op, place: str | None = None) -> R:
        """The rule for this op. Raises: RuleError naming op and table if there is none."""
        if op.kind not in self._entries:
            raise RuleError(f"op '{op.kind}' has no rule in table '{self.name}'", place=place)
        return self._entries[op.kind]


class TorchNamespace(Protocol):
    """The interface of `to_torch` rules to torch; passed in so that op files do not import torch."""

    torch: Any
    functional: Any
    linear_cross_entropy: Callable[..., Any]
    dropout: Callable[..., Any]
    linear_scan: Callable[..., Any]
    linear_attention: Callable[..., Any]

    def linear(self, weight: str) -> Callable[..., Any]:
        """The linear map with this parameter, called with (rows, matrix, bias or None)."""
        ...

    def constant(self, name: str, values: Any) -> Callable[[], Any]:
        """A function that returns this tensor on the device of the module."""
        ...

    def function(self, graph: Graph) -> Callable[..., Any]:
        """The graph as a function from its inputs, in order, to a tuple of its outputs."""
        ...

    @property
    def training(self) -> bool:
        """Whether the module is in training mode, with dropout."""
        ...


Operand = str | bool | int | float | Sequence[int] | Sequence[float]
"""An input of an ONNX node: the name of a value, or a constant (a scalar or a vector)."""


Turn = tuple[str, list[str], list[tuple[Type, str]]]
"""The result of a loop body: whether to continue, the new carried values, and the collected values."""


class OnnxEmitter(Protocol):
    """The interface of `to_onnx` rules for writing ONNX nodes; results are names of ONNX values.

    fused: use ONNX Runtime's own operators. typed: compute matrix products in the number format of their weights.
    emulated: compute such products in float32 from quantized operands and quantize the result, for number formats
    without operators. scatters: write single positions, so that a runtime can do it in place.
    """

    fused: bool
    typed: bool
    scatters: bool
    emulated: bool

    def op(self, kind: str, *inputs: Operand, domain: str = "", **attributes: Any) -> str:
        """Write one node with one output."""
        ...

    def ops(self, kind: str, count: int, *inputs: Operand, domain: str = "", **attributes: Any) -> tuple[str, ...]:
        """Write one node with `count` outputs."""
        ...

    def operand(self, value: Operand) -> str:
        """The name of an input; constants get one."""
        ...

    def flat(self, name: str, *shape: int) -> str:
        """A parameter as a matrix or vector of this shape."""
        ...

    def weight(self, name: str, layout: LayoutName, new: int, width: int) -> Weight:
        """A parameter as a matrix [new, width] in its number format and this layout. Layout rows becomes blocks if the
        format has blocks and the model may use ONNX Runtime's own operators."""
        ...

    def outermost(self, key: str, make: Callable[["OnnxEmitter"], str]) -> str:
        """Let `make` write into the outermost scope, once per key, so that no loop iteration repeats it."""
        ...

    def either(
        self, condition: str, then: Callable[["OnnxEmitter"], str], otherwise: Callable[["OnnxEmitter"], str]
    ) -> str:
        """Write an If with a float32 result; each branch is written into its own scope."""
        ...

    def choose(
        self,
        condition: str,
        then: Callable[["OnnxEmitter"], tuple[str, ...]],
        otherwise: Callable[["OnnxEmitter"], tuple[str, ...]],
        dtypes: tuple[DType, ...],
    ) -> tuple[str, ...]:
        """Write an If with results of these types; each branch is written into its own scope."""
        ...

    def shape(self, axes: Sequence[Axis]) -> str:
        """The run-time sizes of the axes as an int64 vector."""
        ...

    def merged(self, *groups: Sequence[Axis]) -> str:
        """A vector with one element per group: the product of the sizes of its axes."""
        ...

    def once(self, key: str, make: Callable[[], str]) -> str:
        """Let `make` write, once per scope and key."""
        ...

    def bind(self, value: Value, name: str) -> None:
        """Record the ONNX value that holds a value of a graph."""
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
        """Write a Loop, unbounded if `trips` is "", and return its last carried values and the collected values.

        `body(scope, iteration, carried)` writes into its own scope; `keeps` are the axes with the same sizes inside and
        outside.
        """
        ...


class Stepper(Protocol):
    """The interface of `to_step` rules, which read a node of the training graph and write nodes of the step graph.

    A step is of one token, and the axis `time` has size 1, or of `several`; both have the same states. `fixed` states
    do not grow: a cache has the capacity for all positions from the start.
    """

    time: str
    fixed: bool
    several: bool

    def value(self, value: Value) -> Value:
        """The step's counterpart of a value of the training graph."""
        ...

    def carries_time(self, value: Value) -> bool:
        """Whether a value of the training graph has the time axis."""
        ...

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str) -> Value:
        """Write a node of the step graph."""
        ...

    def emit_all(self, op: Op, inputs: tuple[Value, ...], name: str) -> tuple[Value, ...]:
        """Write a node of the step graph with several results."""
        ...

    def state(self, name: str, type: Type, initial: Value | None = None) -> Value:
        """Declare a state that starts as `initial`, a value without the time axis, or else as zero (or empty)."""
        ...

    def carry(self, state: Value, new: Value) -> None:
        """Set the state after this step."""
        ...

    def position(self) -> Value:
        """The index of the first token of this step: int64, no axes."""
        ...

    def index(self) -> Value:
        """The indices of the tokens of this step: int64 [time]."""
        ...

    def places(self, window: int | None = None) -> Value:
        """The positions of the entries of a cache: int64. Those of a fixed one are 0, 1, 2, .. up to its capacity;
        those of a growing one, which may have held only the last `window`, end with the tokens of this step."""
        ...

    def refuse(self, reason: str, hint: str | None = None) -> RuleError:
        """The error for a node that cannot be decoded step by step; the caller raises it."""
        ...


Hidden = Literal["open", "masked", "faint", "zero", "low", "large", "unread"]
"""The content of a value over queries and keys at keys that come after the query: numbers of ordinary size, MASKED,
MASKED times a factor from LEAST_FACTOR to 1, zero, numbers that may be very negative, or any numbers; `unread` is said
of a result of ordinary size by an op that mixes keys, or queries, and to which such keys gave only zeros."""

UNREAD: frozenset[Hidden] = frozenset({"zero", "unread"})
"""The contents of results to which later keys gave only zeros."""

HIDING: frozenset[Hidden] = frozenset({"masked", "faint"})
"""The contents that hide a key: their softmax, `exp` and `relu` are zero."""

LEAST_FACTOR = 0.01
"""The smallest factor after which masked scores are still far below all others."""

TypesRule = Callable[[Any, tuple[Type, ...]], tuple[Type, ...]]
MixesRule = Callable[[Any, Node], frozenset[str]]
TorchRule = Callable[[Any, Node, TorchNamespace], Callable[..., Any]]
OnnxRule = Callable[[Any, Node, OnnxEmitter, tuple[str, ...]], tuple[str, ...]]
StepRule = Callable[[Any, Node, Stepper], tuple[Value, ...]]
CostRule = Callable[[Any, Node], Cost]
LengthsRule = Callable[[Any, Node], Mapping[str, Length]]

HiddenRule = Callable[[Any, Node, tuple[Hidden, ...], frozenset[str]], Hidden]

types: Table[TypesRule] = Table("types")
mixes: Table[MixesRule] = Table("mixes")
to_torch: Table[TorchRule] = Table("to_torch")
to_onnx: Table[OnnxRule] = Table("to_onnx")
to_step: Table[StepRule] = Table("to_step")
cost: Table[CostRule] = Table("cost")
lengths: Table[LengthsRule] = Table("lengths")
"""The axes that an op makes whose sizes are known only at run time, each with its size. Without a rule: none."""
hidden: Table[HiddenRule] = Table("hidden")
"""The content of the result at later keys, given that of the inputs, for these axes of keys. Without a rule: `mixture`.
"""


def mixture(*inputs: Hidden, otherwise: Hidden = "large") -> Hidden:
    """The content of a function of such inputs: of ordinary size if they are."""
    return "open" if set(inputs) <= {"open", "zero"} else otherwise


def hidden_as_given(op: Op, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """The `hidden` rule of ops that change no number of their first input."""
    return inputs[0]


def infer_types(op: Op, inputs: tuple[Type, ...], place: str | None = None) -> tuple[Type, ...]:
    """The types of an op's results. Raises: RuleError, with the place in the spec, for invalid inputs."""
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
    """The cost of this node. Raises: RuleError if its op has no cost rule."""
    return cost.of(node.op, node.place)(node.op, node)


def made_lengths(nodes: Iterable[Node]) -> Iterator[tuple[str, Length]]:
    """The axes whose sizes are known only at run time that the nodes make, in order."""
    for node in nodes:
        if lengths.has(node.op):
            yield from lengths.of(node.op)(node.op, node).items()


def mixes_nothing(op: Op, node: Node) -> frozenset[str]:
    """The `mixes` rule of ops that work on each position separately."""
    return frozenset()


def mixed_axes(node: Node) -> frozenset[str]:
    """The axes whose positions this node mixes; it maps its other axes position by position."""
    return mixes.of(node.op, node.place)(node.op, node)
