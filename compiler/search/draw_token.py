"""What all sampling does with the logits of a step, each a function of what it is given: docs/search.md defines it."""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.carried import Flags, Integers, Sums
from xformc.compiler.search.loops import Record
from xformc.format.tokens import PAD

_FLOAT, _INT64 = 1, 7


@dataclass(frozen=True)
class Text(Record):
    """A text of each row: the token to feed, whether it has ended, how many tokens were sampled and their score."""

    newest: Integers
    done: Flags
    lengths: Integers
    scores: Sums


@dataclass(frozen=True)
class Temperature:
    """What logits are divided by, and whether the likeliest token is taken instead."""

    divisor: str
    greedy: str


def vocabulary_of(decoder: Decoder) -> int:
    """How many tokens a decoder has logits for."""
    (size,) = Type("float32", decoder.logits.type.axes[-1:]).sizes()
    return size


def emit_temperature(onnx: OnnxEmitter, temperature: str) -> Temperature:
    """The temperature of an input, which is 0 for greedy search."""
    greedy = onnx.op("Equal", temperature, 0.0)
    return Temperature(onnx.op("Where", greedy, 1.0, temperature), greedy)


def below_highest(onnx: OnnxEmitter, logits: str) -> str:
    """How far each logit is below the highest of its text, [batch, vocabulary], of logits [batch, 1, vocabulary]."""
    logits = onnx.op("Squeeze", logits, [1])
    return onnx.op("Sub", logits, onnx.op("ReduceMax", logits, [1], keepdims=1))


def weigh(onnx: OnnxEmitter, below: str, temperature: Temperature) -> str:
    """The probability of each token, but for a factor, [batch, vocabulary]."""
    return onnx.op("Exp", onnx.op("Div", below, temperature.divisor))


def cumulate(onnx: OnnxEmitter, weights: str, below: str, threshold: str) -> str:
    """The sums of the weights of what is not below the threshold, in the order of the tokens [batch, vocabulary]."""
    return onnx.op("CumSum", onnx.op("Where", onnx.op("GreaterOrEqual", below, threshold), weights, 0.0), 1)


def draw(onnx: OnnxEmitter, reached: str, total: str, uniform: str, temperature: Temperature) -> str:
    """The token drawn for each text, [batch]: the first whose sum is above this share of the total, [batch, 1]."""
    goal = onnx.op("Mul", onnx.op("Unsqueeze", uniform, [1]), total)
    goal = onnx.op("Where", temperature.greedy, 0.0, goal)
    return onnx.op("Cast", count(onnx, onnx.op("LessOrEqual", reached, goal), keepdims=0), to=_INT64)


def real(onnx: OnnxEmitter, tokens: str) -> str:
    """Which tokens are not padding."""
    return onnx.op("Not", onnx.op("Equal", tokens, PAD))


def append_token(onnx: OnnxEmitter, text: Text, given: str, drawn: str, below: str) -> tuple[str, Text]:
    """Which texts [batch] were sampled, and all of them with another token: that of the prompt where one is given.

    `done` stays as it is.
    """
    sampled = onnx.op("Not", onnx.op("Or", real(onnx, given), text.done))
    token = onnx.op("Where", sampled, drawn, given)
    lengths = onnx.op("Add", text.lengths, onnx.op("Cast", sampled, to=_INT64))
    total = onnx.op("ReduceSum", onnx.op("Exp", below), [1], keepdims=0)
    gain = onnx.op("Sub", _at(onnx, below, drawn), onnx.op("Log", total))
    scores = onnx.op("Add", text.scores, onnx.op("Where", sampled, gain, 0.0))
    return sampled, Text(token, text.done, lengths, scores)


def ended_texts(onnx: OnnxEmitter, text: Text, sampled: str, end_token: str, max_new_tokens: str) -> str:
    """Which texts have ended, [batch]."""
    ended = onnx.op("And", sampled, onnx.op("Equal", text.newest, end_token))
    full = onnx.op("GreaterOrEqual", text.lengths, max_new_tokens)
    return onnx.op("Or", text.done, onnx.op("Or", ended, full))


def count(onnx: OnnxEmitter, flags: str, *, keepdims: int) -> str:
    """How many of the flags [batch, ..] are set, as floats, which are the fastest to add up."""
    return onnx.op("ReduceSum", onnx.op("Cast", flags, to=_FLOAT), [1], keepdims=keepdims)


def _at(onnx: OnnxEmitter, values: str, tokens: str) -> str:
    """The value of each text's token: of [batch, vocabulary] by [batch], [batch]."""
    taken = onnx.op("GatherElements", values, onnx.op("Unsqueeze", tokens, [1]), axis=1)
    return onnx.op("Squeeze", taken, [1])
