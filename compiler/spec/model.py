"""The parsed parts of a spec's model, with their names checked; a graph is built from them."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.results.kind import Declared
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.problems import Span
from xformc.compiler.spec.syntax import Block, Inline
from xformc.compiler.spec.ties import Ties
from xformc.compiler.spec.tree import Tree
from xformc.format.inputs import Input as RecordedInput
from xformc.format.tokens import SPECIAL, SpecialTokens

MAX_AXIS = 2**31 - 1
"""The largest size of an axis."""

InputKind = Literal["tokens", "vectors", "values", "edges"]


@dataclass(frozen=True)
class Input:
    """An input of the model, and where it is declared.

    `axes`: the vocabulary for tokens, the width for vectors, all axes but the batch for values. Edges have none. `of`:
    the input whose positions edges connect, or along which tokens or vectors lie; None for positions of its own.
    `rate`: the samples in a second, of vectors that are the samples of a sound. `special`: the special tokens of a
    vocabulary.
    """

    kind: InputKind
    axes: tuple[Axis, ...]
    of: str | None
    span: Span = field(repr=False, compare=False)
    rate: int | None = None
    special: SpecialTokens = SPECIAL

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary; for tokens only."""
        assert self.kind == "tokens", f"an input of {self.kind} has no vocabulary"
        return self.axes[0].size or 0

    @property
    def is_sequence(self) -> bool:
        """Whether it has positions of its own, along an axis that is named after the input and has no fixed size."""
        return self.kind in ("tokens", "vectors") and self.of is None

    @property
    def recorded(self) -> RecordedInput:
        """The input as an engine records it, without a limit of positions."""
        tokens = self.kind == "tokens"
        axes = {} if tokens else {axis.name: axis.size or 0 for axis in self.axes}
        return RecordedInput(
            self.kind,
            vocabulary=self.vocabulary if tokens else None,
            axes=axes,
            of=self.of,
            rate=self.rate,
            special=self.special,
        )

    def type(self, name: str) -> Type:
        """The type of the graph input `name`."""
        batch, positions = Axis("batch"), Axis(self.of or name)
        if self.kind == "tokens":
            return Type("int64", (batch, positions))
        if self.kind == "vectors":
            return Type("float32", (batch, positions, *self.axes))
        if self.kind == "values":
            return Type("float32", (batch, *self.axes))
        return Type("bool", (batch, Axis(f"{self.of}"), Axis(f"{self.of}_keys")))


def read_texts(inputs: Mapping[str, Input], written: str | None) -> tuple[str, ...]:
    """The inputs of text with words of their own that are read and not `written`, in order."""
    own = (name for name, item in inputs.items() if item.kind == "tokens" and item.of is None)
    return tuple(name for name in own if name != written)


def sequences_of(inputs: Mapping[str, Input]) -> list[str]:
    """The inputs with positions of their own."""
    return [name for name, item in inputs.items() if item.is_sequence]


@dataclass(frozen=True)
class Model:
    """The model that a graph is built from.

    `declared` holds each size as written, `words` the words of each choice that the model's bodies choose by. The last
    stage makes the result, and each stage uses stages before it. `left_out`: inherited stages that nothing uses.
    """

    sizes: Mapping[str, Number]
    declared: Mapping[str, Tree]
    choices: Mapping[str, Tree]
    inputs: Mapping[str, Input]
    results: tuple[Declared, ...]
    blocks: Mapping[str, Block]
    stages: Mapping[str, Inline]
    ties: Ties
    words: Mapping[str, Set[str]]
    defaults: Mapping[str, Mapping[str, Tree]] = field(default_factory=dict[str, Mapping[str, Tree]])
    left_out: Set[str] = frozenset()
