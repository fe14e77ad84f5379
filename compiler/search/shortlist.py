"""Searches among the tokens that the source makes likely, as ONNX operators; docs/search.md defines them."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.native import emit_vocabulary
from xformc.compiler.quantize.layouts import PANEL
from xformc.compiler.search.carried import NEVER
from xformc.format.operators import DOMAIN

_INT64 = 7


@dataclass(frozen=True)
class ShortlistInputs:
    """The ONNX names of the source's tokens [batch, source] and of the lists (see `Shortlist`), and the number of
    target tokens."""

    source: str
    common: str
    likely: str
    vocabulary: int


@dataclass(frozen=True)
class Asked:
    """The tokens that calls ask for, which are allowed as well: the beginnings [batch, any], padded with `absent`, and
    the phrases [rows, lists, any], padded with -1, or empty for none. All tokens may follow where `start` [batch], the
    first state of an automaton, is not below 0."""

    prefix: str
    absent: int
    phrases: str
    start: str


@dataclass(frozen=True)
class Lists:
    """For each sentence of a batch the tokens of its list [batch, most], in order, then -1, and their weights, scales
    and biases, in panels [batch, any]; -2 is the first token if all may follow."""

    tokens: str
    weights: str
    scales: str
    biases: str


def emit_allowed(onnx: OnnxEmitter, given: ShortlistInputs, asked: Asked, batch: str) -> str:
    """Which tokens may follow in each sentence, bool [batch, vocabulary]; `batch` is its size, a vector."""
    likely = onnx.op("Cast", onnx.op("Gather", given.likely, given.source, axis=0), to=_INT64)
    common = onnx.op("Cast", given.common, to=_INT64)
    begun = onnx.op("Where", onnx.op("Equal", asked.prefix, asked.absent), -1, asked.prefix)
    parts = [onnx.op("Reshape", likely, [0, -1]), begun, _for_all(onnx, onnx.op("Unsqueeze", common, [0]), batch)]
    if asked.phrases:
        count = onnx.op("ReduceProd", onnx.op("Shape", asked.phrases, start=1), keepdims=1)
        rows = onnx.op("Concat", onnx.op("Shape", asked.phrases, end=1), count, axis=0)
        parts.append(_for_all(onnx, onnx.op("Reshape", asked.phrases, rows, allowzero=1), batch))
    tokens = onnx.op("Concat", *parts, axis=1)
    none = onnx.op("Expand", False, onnx.op("Concat", batch, [given.vocabulary + 1], axis=0))  # -1 is the last one
    marks = onnx.op("ScatterElements", none, tokens, onnx.op("Expand", True, onnx.op("Shape", tokens)), axis=1)
    allowed = onnx.op("Slice", marks, [0], [given.vocabulary], [1])
    return onnx.op("Or", allowed, onnx.op("Unsqueeze", onnx.op("GreaterOrEqual", asked.start, 0), [1]))


def _for_all(onnx: OnnxEmitter, tokens: str, batch: str) -> str:
    """Tokens [rows, any], one row or those of all sentences, as [batch, any]."""
    return onnx.op("Expand", tokens, onnx.op("Concat", batch, [1], axis=0))


def only_listed(onnx: OnnxEmitter, logits: str, allowed: str) -> str:
    """The logits [batch, beam, 1, vocabulary], -inf of tokens that are not `allowed` [batch, vocabulary]."""
    return onnx.op("Where", onnx.op("Unsqueeze", allowed, [1, 2]), logits, NEVER)


def emit_lists(onnx: OnnxEmitter, given: ShortlistInputs, asked: Asked, projection: Node) -> Lists:
    """Write the lists of a batch with their parts of a plain projection onto the vocabulary."""
    whole = emit_vocabulary(onnx, projection)
    tokens = (given.source, given.likely, given.common, asked.prefix, asked.phrases, asked.start)
    found = onnx.ops(
        "Shortlist",
        4,
        *tokens,
        *whole.inputs,
        domain=DOMAIN,
        precision=whole.precision,
        vocabulary=whole.size,
        depth=whole.depth,
        pad=asked.absent,
    )
    return Lists(*found)


def slot_types(given: ShortlistInputs | None, projection: Node | None) -> dict[str, Type]:
    """The types of what the runtime keeps of a text's list in its slot [slots, ..], by name; see `in_slots`."""
    if given is None:
        return {}
    slots, panels = Axis("slots"), Axis("listed_panels")
    if projection is None:
        return {_SLOTS[0]: Type("bool", (slots, Axis("", given.vocabulary)))}
    axes = Axis("", PANEL), Axis("listed_weights"), Axis("listed_scales"), Axis("listed_biases")
    dtypes = "int64", "int8", "float32", "float32"
    return {name: Type(dtype, (slots, panels, axis)) for name, dtype, axis in zip(_SLOTS, dtypes, axes, strict=True)}


def in_slots(onnx: OnnxEmitter, lists: Lists | str) -> dict[str, str]:
    """The lists of a batch, or its allowed tokens, as slots have them, which grow with zeros: by panels, and each token
    raised by 1."""
    if isinstance(lists, str):
        return {_SLOTS[0]: lists}
    length = onnx.op("Shape", lists.tokens, start=1)
    panels = onnx.op("Div", onnx.op("Add", length, [PANEL - 1]), [PANEL])
    more = onnx.op("Sub", onnx.op("Mul", panels, [PANEL]), length)
    tokens = onnx.op("Pad", onnx.op("Add", lists.tokens, 1), onnx.op("Concat", [0, 0, 0], more, axis=0))
    shape = onnx.op("Concat", [0], panels, [-1], axis=0)
    values = tokens, lists.weights, lists.scales, lists.biases
    return {name: onnx.op("Reshape", value, shape) for name, value in zip(_SLOTS, values, strict=True)}


def from_slots(onnx: OnnxEmitter, known: Mapping[str, str]) -> Lists | str | None:
    """The lists of a batch, or its allowed tokens, from the rows of its slots; None without any."""
    found = [known[name] for name in _SLOTS if name in known]
    if len(found) < len(_SLOTS):
        return found[0] if found else None
    tokens, *rest = (onnx.op("Reshape", value, [0, -1]) for value in found)
    return Lists(onnx.op("Sub", tokens, 1), *rest)


_SLOTS = ("shortlist/tokens", "shortlist/weights", "shortlist/scales", "shortlist/biases")
"""The names of the inputs; the first is also that of the allowed tokens."""
