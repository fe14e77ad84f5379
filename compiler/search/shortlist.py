"""Searches among the tokens that the source makes likely, as ONNX operators; docs/search.md defines them."""

from dataclasses import dataclass

from xformc.compiler.graph.graph import Node
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.native import emit_vocabulary
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
    the phrases [rows, lists, any], padded with -1. All tokens may follow where the first state of an automaton, `start`
    [rows], is not below 0. `phrases` and `start` are empty for none."""

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
    if not asked.start:
        return allowed
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
