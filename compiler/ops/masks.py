"""Masks of attention: padding, later positions, positions outside the window, and missing edges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    HIDING,
    Hidden,
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixes_nothing,
    mixture,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import Align, aligner, emit_aligned, union

MASKED = -1e9
"""The score of a hidden key; its softmax is exactly zero in float32, unless all keys are hidden."""

NEVER = 2 * MASKED
"""The score of padding, later keys and keys outside the window: their softmax is zero even if edges hide all others."""


LARGEST_NUMBER = 1e6
"""The largest number that is of ordinary size: added to MASKED, it leaves its softmax at zero."""


@dataclass(frozen=True)
class PaddingMask(Op):
    """True where a token is not the padding id."""

    kind: ClassVar[str] = "padding_mask"
    pad: int


@dataclass(frozen=True)
class Fill(Op):
    """`x` where the mask is true, `value` elsewhere. The mask has some of the axes of `x`."""

    kind: ClassVar[str] = "fill"
    value: float


@dataclass(frozen=True)
class Select(Op):
    """`a` where the mask is true, `b` elsewhere. Inputs: mask, a, b; axes are matched by name and broadcast."""

    kind: ClassVar[str] = "select"


@dataclass(frozen=True)
class LocalMask(Op):
    """Scores [.., queries, .., keys, ..] with NEVER where a query may not see a key.

    `causal`: a query sees no key after its own position. `window`: it sees only keys that are less than `window`
    positions away. `queries` and `keys` are the same positions.
    """

    kind: ClassVar[str] = "local_mask"
    queries: str
    keys: str
    causal: bool
    window: int | None = None


@dataclass(frozen=True)
class Reached(Op):
    """The entries of a cache that a query sees: true up to its position, or for the last `window` entries of these.

    Inputs: the positions of the entries, int64 [room]; the query's position, an int64 scalar, or those of several
    queries, int64 [queries]. Result: bool [keys], or bool [queries, keys].

    Keys of a whole beam (`BeamKeys`) take a scalar and two inputs more: the ancestors, int64 [batch, beam, room], which
    are the beam index of each hypothesis at each position, and the beam indices, int64 [beam]. Result: bool [batch,
    beam, keys].
    """

    kind: ClassVar[str] = "reached"
    keys: str
    window: int | None = None


@types.rule(PaddingMask)
def _padding_mask_types(op: PaddingMask, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (tokens,) = inputs
    require(tokens.dtype == "int64", f"needs int64 tokens, found {tokens}")
    return (Type("bool", tokens.axes),)


@types.rule(Fill)
def _fill_types(op: Fill, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, mask = inputs
    require(mask.dtype == "bool", f"the mask {mask} must be bool")
    extra = [axis.name for axis in mask.axes if axis.name not in x.names]
    require(not extra, f"the mask's axis {', '.join(extra)} is not in {x}")
    return (x,)


@types.rule(Select)
def _select_types(op: Select, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    mask, a, b = inputs
    require(mask.dtype == "bool", f"the condition {mask} must be bool")
    require(a.dtype == b.dtype, f"needs two values of the same dtype, found {a.dtype} and {b.dtype}")
    return (Type(a.dtype, union(union(a.axes, b.axes), mask.axes)),)


@types.rule(LocalMask)
def _local_mask_types(op: LocalMask, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    for name in (op.queries, op.keys):
        require(name in x.names, f"the scores {x} have no axis {name}")
    return (x,)


@types.rule(Reached)
def _reached_types(op: Reached, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    places, position, *beam = inputs
    require(places.dtype == "int64" and len(places.axes) == 1, f"needs int64 [room], found {places}")
    require(position.dtype == "int64" and len(position.axes) < 2, f"needs one position or a vector, found {position}")
    if beam:
        ancestors, ranks = beam
        fits = ancestors.axes[1:] == (*ranks.axes, *places.axes) and not position.axes
        require(fits, f"{ancestors} must be the ancestors of {ranks} at {places}")
        return (Type("bool", (*ancestors.axes[:2], Axis(op.keys))),)
    return (Type("bool", (*position.axes, Axis(op.keys, places.axes[0].size))),)


mixes.rule(PaddingMask)(mixes_nothing)
mixes.rule(Reached)(mixes_nothing)
mixes.rule(Fill)(mixes_nothing)
mixes.rule(Select)(mixes_nothing)


@mixes.rule(LocalMask)
def _local_mask_mixes(op: LocalMask, node: Node) -> frozenset[str]:
    return frozenset({op.queries})


@hidden.rule(Fill)
def _fill_hidden(op: Fill, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return filled(inputs[0], op.value)


def filled(held: Hidden, value: float) -> Hidden:
    """The content of keys of which some are filled; later ones must keep a lower score than those hidden by edges."""
    return either(held, "masked" if value == NEVER else content(value))


def content(number: float) -> Hidden:
    """The content of a number: masked scores plus one of ordinary size have a softmax of zero."""
    if abs(number) > LARGEST_NUMBER:
        return "low" if number < 0 else "large"
    return "zero" if number == 0 else "open"


def either(first: Hidden, second: Hidden) -> Hidden:
    """The content of a value that is the first at some keys and the second at others."""
    if "large" in (first, second):
        return "large"
    if first != second and first in HIDING and second in HIDING:
        return "faint"
    return first if first == second else mixture(first, second, otherwise="low")


@hidden.rule(Select)
def _select_hidden(op: Select, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return either(inputs[1], inputs[2])


@hidden.rule(LocalMask)
def _local_mask_hidden(op: LocalMask, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "masked" if op.causal and op.keys in keys else filled(inputs[0], NEVER)


@to_step.rule(LocalMask)
def _local_mask_step(op: LocalMask, node: Node, step: Stepper) -> tuple[Value, ...]:
    if not op.causal:
        raise step.refuse("every position sees the ones after it; make the mask causal")
    scores, mask = step.value(node.inputs[0]), reached(op, step, node)
    return (scores if mask is None else step.emit(Fill(NEVER), (scores, mask), node.outputs[0].name),)


def reached(op: Any, step: Stepper, node: Node) -> Value | None:
    """The keys of a cache that each query sees, for an op with the fields `keys` and `window`; None for all."""
    if not (step.fixed or step.several):
        return None
    queries = step.index() if step.several else step.position()
    places = step.places(op.window)
    return step.emit(Reached(op.keys, op.window), (places, queries), f"{node.outputs[0].name}/reached")


@to_torch.rule(PaddingMask)
def _padding_mask_torch(op: PaddingMask, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda tokens: tokens != op.pad


@to_onnx.rule(PaddingMask)
def _padding_mask_onnx(op: PaddingMask, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Not", onnx.op("Equal", *inputs, op.pad)),)


@to_torch.rule(Fill)
def _fill_torch(op: Fill, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    align = aligner(node.inputs[1].type, Type("bool", node.inputs[0].type.axes))
    return lambda x, mask: x.masked_fill(~align(mask), op.value)


@to_onnx.rule(Fill)
def _fill_onnx(op: Fill, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, mask = inputs
    aligned = emit_aligned(onnx, mask, node.inputs[1].type, node.inputs[0].type)
    return (onnx.op("Where", aligned, x, float(op.value)),)


@to_torch.rule(Select)
def _select_torch(op: Select, node: Node, torch: TorchNamespace) -> Callable[[Any, Any, Any], Any]:
    mask, a, b = (aligner(value.type, node.outputs[0].type) for value in node.inputs)
    return lambda x, y, z: torch.torch.where(mask(x), a(y), b(z))


@to_onnx.rule(Select)
def _select_onnx(op: Select, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    result = node.outputs[0].type
    aligned = (emit_aligned(onnx, name, value.type, result) for name, value in zip(inputs, node.inputs, strict=True))
    return (onnx.op("Where", *aligned),)


@to_torch.rule(Reached)
def _reached_torch(op: Reached, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def apply(places: Any, position: Any, *beam: Any) -> Any:
        position = position.unsqueeze(-1)
        seen = places <= position
        seen = seen if op.window is None else seen & (places > position - op.window)
        if not beam:
            return seen
        ancestors, ranks = beam
        return (seen.unsqueeze(-1) & (ancestors.unsqueeze(-1) == ranks)).flatten(2)

    return apply


@to_onnx.rule(Reached)
def _reached_onnx(op: Reached, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    places, position, *beam = inputs

    def make() -> str:
        query = onnx.op("Unsqueeze", position, [1]) if node.inputs[1].type.axes else position
        seen = onnx.op("LessOrEqual", places, query)
        if op.window is not None:
            seen = onnx.op("And", seen, onnx.op("Greater", places, onnx.op("Sub", query, op.window)))
        if not beam:
            return seen
        ancestors, ranks = beam
        own = onnx.op("Equal", onnx.op("Unsqueeze", ancestors, [3]), ranks)
        return onnx.op("Reshape", onnx.op("And", own, onnx.op("Unsqueeze", seen, [1])), [0, 0, -1])

    return (onnx.once(f"reached {places} {position} {op.window} {beam}", make),)


@to_torch.rule(LocalMask)
def _local_mask_torch(op: LocalMask, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    x = node.inputs[0].type
    align = aligner(_local(op, x), Type("bool", x.axes))
    index = x.names.index(op.queries)
    return lambda x: x.masked_fill(~align(visible(op, torch, x.shape[index], x.device)), NEVER)


def visible(op: Any, torch: TorchNamespace, size: int, device: Any) -> Any:
    """bool [queries, keys]: whether a query sees a key, for an op with the fields `causal` and `window`."""
    ones = torch.torch.ones(size, size, dtype=torch.torch.bool, device=device)
    seen = ones.tril() if op.causal else ones
    if op.window is not None:
        seen = seen.triu(1 - op.window).tril(op.window - 1)
    return seen


@to_onnx.rule(LocalMask)
def _local_mask_onnx(op: LocalMask, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x = node.inputs[0].type
    seen = emit_visible(op, onnx, x.axis(op.queries))
    return (onnx.op("Where", emit_aligned(onnx, seen, _local(op, x), x), *inputs, NEVER),)


def emit_visible(op: Any, onnx: OnnxEmitter, axis: Axis) -> str:
    """Write the mask of `visible`, once per scope."""

    def make() -> str:
        ones = onnx.op("Expand", True, onnx.merged((axis,), (axis,)))
        seen = onnx.op("Trilu", ones, upper=0) if op.causal else ones
        if op.window is not None:
            seen = onnx.op("Trilu", seen, 1 - op.window, upper=1)
            seen = seen if op.causal else onnx.op("Trilu", seen, op.window - 1, upper=0)
        return seen

    return onnx.once(f"visible {axis.name} {op.causal} {op.window}", make)


def _local(op: LocalMask, x: Type) -> Type:
    return Type("bool", (x.axis(op.queries), x.axis(op.keys)))


for _op in (PaddingMask, Reached, Fill, Select, LocalMask):
    cost.rule(_op)(per_result(0))


@primitive("zero_padding")
def zero_padding(site: Site, x: Value, name: str = "") -> Value:
    """`x` with zeros at padding positions."""
    mask = site.mask(site.positions(x))
    return x if mask is None else site.emit(Fill(0.0), x, mask, name=name)


def spread(site: Site, x: Value, mask: Value) -> Value:
    """`x` with the axes of the mask that it lacks, in front: what examples share has other padding in each of them."""
    if set(mask.type.axes) <= set(x.type.axes):
        return x
    return site.emit(Align(x.type.names), site.emit(Select(), mask, x, x, name="shared"), name="spread")


def without_padding(site: Site, x: Value, axes: tuple[str, ...], value: float = 0.0) -> Value:
    """`x` with this number at padding along these axes."""
    for axis in axes:
        mask = site.padding(axis)
        x = x if mask is None else site.emit(Fill(value), spread(site, x, mask), mask, name="real")
    return x


def fill_padding(site: Site, x: Value, value: float) -> Value:
    """`x` with this number at padding, along each of its axes of positions or keys whose size is known at run time.

    A value that all examples share has no padding: each of its positions is real in one of them.
    """
    for axis in x.type.axes if "batch" in x.type.names else ():
        mask = site.mask(axis.name) if axis.size is None else None
        if mask is not None:
            x = site.emit(Fill(value), x, mask, name="real")
    return x


@primitive("mask", causal=optional("flag"), edges=optional("value"))
def _mask(site: Site, x: Value, causal: bool = False, edges: Value | None = None) -> Value:
    """Scores over keys, masked where a query may not see a key.

    Padding and keys outside the window are always masked. `causal` also masks later keys, and `edges` masks pairs
    without an edge. For a query without any edge, all keys that are not masked otherwise have equal weight.
    """
    keys = site.keys(x)
    if edges is not None:
        x = site.emit(Fill(MASKED), x, edges, name="edges")
    padding = None if causal else site.mask(keys.name)
    if padding is not None:
        x = site.emit(Fill(NEVER), x, padding, name="padding")
    if not causal and keys.window is None:
        return x
    if keys.positions not in x.type.names:
        raise site.refuse(f"{x.type} has no queries at {keys.positions}, the positions of its keys")
    return site.emit(LocalMask(keys.positions, keys.name, causal, keys.window), x, name="local")
