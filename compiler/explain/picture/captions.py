"""The captions of boxes, and their kinds."""

import re
from collections.abc import Sequence

from xformc.compiler.graph.graph import Node

_NAMES = {
    "relu": "ReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "gru": "GRU",
    "lstm": "LSTM",
    "rnn": "RNN",
    "glu": "GLU",
    "geglu": "GEGLU",
    "swiglu": "SwiGLU",
    "mlp": "MLP",
    "rope": "RoPE",
    "alibi": "ALiBi",
    "rms": "RMS",
}
_SMALL_WORDS = {"of", "and", "the", "to", "over", "in", "on"}
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("attention", frozenset({"attention", "contract"})),
    ("recurrent", frozenset({"recurrence"})),
    ("convolution", frozenset({"convolution"})),
    ("positions", frozenset({"positions", "sinusoid"})),
    ("embedding", frozenset({"embedding"})),
)
_PLAIN = (("norm", frozenset({"layer_norm", "rms_norm"})), ("softmax", frozenset({"softmax"})))
"""Kinds of boxes. A box has the kind of the first row with one of its ops; _PLAIN only if it has no linear map."""


def pretty(name: str) -> str:
    """A name of the spec as a title: `causal_self_attention` becomes Causal Self Attention."""
    words = [_NAMES.get(word, word if word in _SMALL_WORDS else word.capitalize()) for word in name.split("_")]
    return " ".join(words)


def kind_of(nodes: Sequence[Node]) -> str:
    """The kind of a box with these nodes, which determines its colour."""
    kinds = {node.op.kind for node in nodes}
    for kind, ops in _KINDS:
        if kinds & ops:
            return kind
    if "linear" in kinds:
        return "feed_forward" if kinds - {"linear", "add", "align", "dropout"} else "linear"
    return next((kind for kind, ops in _PLAIN if kinds & ops), "function")


def factor(written: str) -> str:
    """The factor of a scale as written in the spec, with a root sign, and four digits of a long number."""
    text = re.sub(r"sqrt\((\w+)\)", "\N{SQUARE ROOT}\\1", written)
    text = re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.4g}", text)
    return f"\N{MULTIPLICATION SIGN} {text}"
