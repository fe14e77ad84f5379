"""The parts of a sampling step that all targets share, as functions; docs/search.md defines them."""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.candidates import is_end
from xformc.compiler.search.carried import Flags, Integers, Sums
from xformc.compiler.search.loops import Record
from xformc.format.tokens import SpecialTokens

_FLOAT, _INT64 = 1, 7
_LINE = 16
"""The number of float32 numbers in a line of the cache."""


@dataclass(frozen=True)
class Text(Record):
    """The texts of a batch: the token to feed, whether a text has ended, the number of sampled tokens, their score."""

    newest: Integers
    done: Flags
    lengths: Integers
    scores: Sums


@dataclass(frozen=True)
class Temperature:
    """The divisor of the logits, and whether to take the most likely token instead."""

    divisor: str
    greedy: str


def vocabulary_of(decoder: Decoder) -> int:
    """The vocabulary size of a decoder's logits."""
    (size,) = Type("float32", decoder.logits.type.axes[-1:]).sizes()
    return size


def emit_temperature(onnx: OnnxEmitter, temperature: str) -> Temperature:
    """Turn the temperature input, 0 for greedy search, into a Temperature."""
    greedy = onnx.op("Equal", temperature, 0.0)
    return Temperature(onnx.op("Where", greedy, 1.0, temperature), greedy)


def below_highest(onnx: OnnxEmitter, logits: str) -> str:
    """Subtract the highest logit of each text: [batch, 1, vocabulary] -> [batch, vocabulary]."""
    return subtract_highest(onnx, onnx.op("Squeeze", logits, [1]))


def subtract_highest(onnx: OnnxEmitter, logits: str) -> str:
    """Subtract the highest logit of each row: [rows, vocabulary] -> [rows, vocabulary]."""
    return onnx.op("Sub", logits, onnx.op("ReduceMax", logits, [1], keepdims=1))


def weigh(onnx: OnnxEmitter, below: str, temperature: Temperature) -> str:
    """The unnormalized probability of each token, [batch, vocabulary]."""
    return onnx.op("Exp", onnx.op("Div", below, temperature.divisor))


def cumulate(onnx: OnnxEmitter, weights: str, below: str, threshold: str) -> str:
    """The cumulative sum of the weights of tokens not below the threshold, by token id, [batch, vocabulary]."""
    return onnx.op("CumSum", onnx.op("Where", onnx.op("GreaterOrEqual", below, threshold), weights, 0.0), 1)


def draw(onnx: OnnxEmitter, reached: str, total: str, uniform: str, temperature: Temperature) -> str:
    """The token drawn for each text, [batch]: the first with a sum above `uniform` times `total` [batch, 1]."""
    goal = onnx.op("Mul", onnx.op("Unsqueeze", uniform, [1]), total)
    goal = onnx.op("Where", temperature.greedy, 0.0, goal)
    return onnx.op("Cast", count(onnx, onnx.op("LessOrEqual", reached, goal), keepdims=0), to=_INT64)


def real(onnx: OnnxEmitter, tokens: str, special: SpecialTokens) -> str:
    """The tokens that are not padding."""
    return onnx.op("Not", onnx.op("Equal", tokens, special.absent))


def emit_fed(onnx: OnnxEmitter, tokens: str, special: SpecialTokens) -> str:
    """The tokens with one of the vocabulary where there is none, so that a step can read them."""
    return tokens if special.absent == special.fill else onnx.op("Max", tokens, special.fill)


def append_token(
    onnx: OnnxEmitter, text: Text, given: str, drawn: tuple[str, str], special: SpecialTokens
) -> tuple[str, Text]:
    """Append the drawn token to each text, or the prompt's token while there is one; return which texts were sampled
    [batch], and the new texts. `drawn` are the tokens and their log probabilities, [batch].

    `done` is not updated.
    """
    own, gain = drawn
    sampled = onnx.op("Not", onnx.op("Or", real(onnx, given, special), text.done))
    token = onnx.op("Where", sampled, own, given)
    lengths = onnx.op("Add", text.lengths, onnx.op("Cast", sampled, to=_INT64))
    scores = onnx.op("Add", text.scores, onnx.op("Where", sampled, gain, 0.0))
    return sampled, Text(token, text.done, lengths, scores)


def ended_texts(
    onnx: OnnxEmitter, text: Text, sampled: str, end_token: str, max_new_tokens: str, special: SpecialTokens
) -> str:
    """The texts that have ended, [batch]."""
    ended = onnx.op("And", sampled, is_end(onnx, text.newest, end_token, special))
    full = onnx.op("GreaterOrEqual", text.lengths, max_new_tokens)
    return onnx.op("Or", text.done, onnx.op("Or", ended, full))


def count(onnx: OnnxEmitter, flags: str, *, keepdims: int) -> str:
    """The number of flags [batch, ..] that are set, summed as floats, which is fastest."""
    return onnx.op("ReduceSum", onnx.op("Cast", flags, to=_FLOAT), [1], keepdims=keepdims)


def log_probability(onnx: OnnxEmitter, below: str, tokens: str, vocabulary: int | None = None) -> str:
    """The log probability of each text's token: below [batch, vocabulary], tokens [batch] -> [batch].

    With the size of the vocabulary, a row has the same bits in any batch: ONNX Runtime's sum depends on where a row
    begins in a line of the cache, and its Log on the place of a number in a vector.
    """
    whole = below
    if vocabulary is not None and vocabulary % _LINE:
        whole = onnx.op("Pad", below, [0, 0, 0, -vocabulary % _LINE], float("-inf"))
    total = onnx.op("ReduceSum", onnx.op("Exp", whole), [1], keepdims=int(vocabulary is not None))
    log = onnx.op("Log", total) if vocabulary is None else onnx.op("ReduceLogSum", total, [1], keepdims=0)
    return onnx.op("Sub", _at(onnx, below, tokens), log)


def _at(onnx: OnnxEmitter, values: str, tokens: str) -> str:
    """The value of each text's token: values [batch, vocabulary], tokens [batch] -> [batch]."""
    taken = onnx.op("GatherElements", values, onnx.op("Unsqueeze", tokens, [1]), axis=1)
    return onnx.op("Squeeze", taken, [1])
