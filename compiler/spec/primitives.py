"""The primitives, of which all blocks are made: each is a signature, and the nodes that it makes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Initial, Value
from xformc.compiler.ops.attention import Attention
from xformc.compiler.ops.elementwise import UNARY, Add, Dropout, Scale, Unary
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.ops.positions import Positions, Sinusoid
from xformc.compiler.spec.signature import Kind, Parameter, Signature
from xformc.compiler.spec.writer import Site

Applied = Callable[[Value], Value]


@dataclass(frozen=True)
class Primitive:
    """`apply(site, x, **arguments)` makes the nodes; `tokens`: it is applied to tokens, not to vectors."""

    signature: Signature
    apply: Callable[..., Value]
    doc: str
    tokens: bool = False


PRIMITIVES: dict[str, Primitive] = {}

Maker = Callable[..., Value]


def _primitive(
    name: str, *, tokens: bool = False, transparent: bool = False, **takes: Kind | tuple[Kind, str]
) -> Callable[[Maker], Maker]:
    """Enter the function under this name. Each argument is its kind, or (kind, "optional")."""
    parameters = {
        key: Parameter(item) if isinstance(item, str) else Parameter(item[0], required=False)
        for key, item in takes.items()
    }

    def enter(function: Maker) -> Maker:
        signature = Signature(parameters, transparent)
        PRIMITIVES[name] = Primitive(signature, function, (function.__doc__ or "").strip(), tokens)
        return function

    return enter


@_primitive("linear", to="axes", over=("axes", "optional"), bias=("flag", "optional"))
def _linear(
    site: Site, x: Value, to: tuple[Axis, ...], over: tuple[Axis, ...] | None = None, bias: bool = True
) -> Value:
    """A linear map from the axes `over` (the last) to the axes `to`; weights Glorot uniform, bias zero."""
    old = over or x.type.axes[-1:]
    for axis in old:
        if axis not in x.type.axes:
            raise site.refuse(f"its input {x.type} has no axis {axis}")
    bound = sqrt(6 / (prod(axis.size or 1 for axis in old) + prod(axis.size or 1 for axis in to)))
    inputs = [x, site.parameter("weight", (*to, *old), Initial("uniform", bound))]
    if bias:
        inputs.append(site.parameter("bias", to, Initial("constant", 0.0)))
    return site.emit(Linear(tuple(axis.name for axis in old)), *inputs)


@_primitive("embedding", tokens=True, size="axis")
def _embedding(site: Site, x: Value, size: Axis) -> Value:
    """The row of a table for each token of an input; the table is normal with deviation size^-0.5."""
    return site.emit(Embedding(), x, _table(site, site.vocabulary(x), size))


@_primitive("learned_positions", limit="axis")
def _learned_positions(site: Site, x: Value, limit: Axis) -> Value:
    """The row of a table for each position of `x`, as wide as its last axis; at most `limit` positions."""
    index = site.emit(Positions(site.positions(x), limit.size), x, name="index")
    return site.emit(Embedding(), index, _table(site, limit, x.type.axes[-1]))


def _table(site: Site, rows: Axis, size: Axis) -> Value:
    return site.parameter("weight", (rows, size), Initial("normal", (size.size or 1) ** -0.5))


@_primitive("sinusoid")
def _sinusoid(site: Site, x: Value) -> Value:
    """Sines and cosines of the position of each vector of `x`, interleaved, as wide as its last axis."""
    width = x.type.axes[-1]
    index = site.emit(Positions(site.positions(x)), x, name="index")
    return site.emit(Sinusoid(width.name, width.size or 0), index)


@_primitive("layer_norm", epsilon=("number", "optional"))
def _layer_norm(site: Site, x: Value, epsilon: float = 1e-6) -> Value:
    """Mean 0 and variance 1 over the last axis, then a learned gain and bias."""
    if not 0 < epsilon < 1:
        raise site.refuse_number("epsilon", epsilon, "epsilon lies between 0 and 1")
    gain = site.parameter("gain", x.type.axes[-1:], Initial("constant", 1.0))
    bias = site.parameter("bias", x.type.axes[-1:], Initial("constant", 0.0))
    return site.emit(LayerNorm(float(epsilon)), x, gain, bias)


@_primitive("scale", factor="number")
def _scale(site: Site, x: Value, factor: float) -> Value:
    """Every number times `factor`."""
    return site.emit(Scale(float(factor)), x)


@_primitive("dropout", probability="number")
def _dropout(site: Site, x: Value, probability: float) -> Value:
    """Each number is zeroed with this probability while training; the others grow to keep the mean."""
    rate = _probability(site, "probability", probability)
    return site.emit(Dropout(rate), x) if rate else x


def _probability(site: Site, argument: str, value: float) -> float:
    if not 0 <= value < 1:
        raise site.refuse_number(argument, value, "a probability of dropout is at least 0 and less than 1")
    return float(value)


@_primitive("residual", transparent=True, body="block")
def _residual(site: Site, x: Value, body: Applied) -> Value:
    """`x + body(x)`."""
    change = body(x)
    if not set(change.type.axes) <= set(x.type.axes) or change.type.dtype != x.type.dtype:
        raise site.refuse(f"{change.type} cannot be added to {x.type}", "a residual keeps the axes of its input")
    return site.emit(Add(), x, change, name="sum")


@_primitive("add", transparent=True, step="block")
def _add(site: Site, x: Value, step: Applied) -> Value:
    """`x + step(x)`: the same as residual, for what belongs to the input itself, such as its positions."""
    return _residual(site, x, step)


@_primitive(
    "attend", query="value", key="value", value="value", causal=("flag", "optional"), dropout=("number", "optional")
)
def _attend(  # noqa: PLR0917 (called by name)
    site: Site, x: Value, query: Value, key: Value, value: Value, causal: bool = False, dropout: float = 0.0
) -> Value:
    """Scaled dot-product attention; axes that query, key and value share (heads) are batched over."""
    queries, keys = site.positions(query), site.positions(key)
    op = Attention(queries, keys, causal, _probability(site, "dropout", dropout))
    parts = [
        site.emit(Align((axis, part.type.names[-1])), part, name=name)
        for name, axis, part in (("query", queries, query), ("key", keys, key), ("value", keys, value))
    ]
    masks = [] if causal else [site.mask(keys)]
    return site.emit(op, *parts, *masks)


def _unary(function: str) -> None:
    def apply(site: Site, x: Value) -> Value:
        return site.emit(Unary(function), x)

    apply.__doc__ = f"The activation function {function}."
    _primitive(function)(apply)


for _function in UNARY:
    _unary(_function)
