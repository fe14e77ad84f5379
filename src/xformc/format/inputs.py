"""The inputs of an engine, as engine.json records them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from xformc.format.tokens import SPECIAL, SpecialTokens


@dataclass(frozen=True)
class Input:
    """An input of the model.

    kind: tokens, vectors, values or edges.
    vocabulary: the size of the vocabulary; None unless the kind is tokens.
    axes: the sizes of vectors (one) and values, by name.
    of: the input whose positions edges join, or along which tokens or vectors lie; None for positions of its own.
    longest: the maximum number of positions, or None for no limit.
    tokenizer: the file of the vocabulary, or None for an input that takes ids only.
    rate: the samples in a second, of vectors that are the samples of a sound; None for others.
    special: the special tokens of the vocabulary; tokens only.
    """

    kind: str
    vocabulary: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    of: str | None = None
    longest: int | None = None
    tokenizer: str | None = None
    rate: int | None = None
    special: SpecialTokens = SPECIAL

    @property
    def is_sequence(self) -> bool:
        """Whether it has positions of its own."""
        return self.kind in ("tokens", "vectors") and self.of is None

    @property
    def least(self) -> int:
        """The fewest positions of an example that is not empty: one beside the end token."""
        return 1 + len(self.special.after) if self.kind == "tokens" else 1

    @property
    def hop(self) -> int:
        """The number of samples at each position of a sound."""
        assert self.rate is not None, "only a sound has samples"
        return next(iter(self.axes.values()))

    @property
    def pieces(self) -> int:
        """The size of the vocabulary; tokens only."""
        assert self.vocabulary is not None, f"an input of {self.kind} has no vocabulary"
        return self.vocabulary


@dataclass(frozen=True)
class Vocabularies:
    """The special tokens of an engine: of the inputs of tokens that a call gives, and of the text that it writes."""

    given: Mapping[str, SpecialTokens] = field(default_factory=dict[str, SpecialTokens])
    written: SpecialTokens = SPECIAL

    def of(self, name: str) -> SpecialTokens:
        """Those of a given input; of an unknown one, the usual ones."""
        return self.given.get(name, SPECIAL)


USUAL = Vocabularies()
"""Those of an engine whose vocabularies xformc trained."""


def vocabularies_of(inputs: Mapping[str, Input], written: str | None) -> Vocabularies:
    """The special tokens of an engine with these inputs, which writes the text `written` or none."""
    special = {name: item.special for name, item in inputs.items() if item.kind == "tokens"}
    own = special.pop(written, None) if written is not None else None
    return Vocabularies(special, own or SPECIAL)
