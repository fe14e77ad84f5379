"""The inputs of an engine, as engine.json records them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Input:
    """An input of the model.

    kind: tokens, vectors, values or edges.
    vocabulary: the size of the vocabulary; None unless the kind is tokens.
    axes: the sizes of vectors (one) and values, by name.
    of: the input whose positions edges join, or along which tokens or vectors lie; None for positions of its own.
    longest: the maximum number of positions, or None for no limit.
    tokenizer: the file of the SentencePiece model, or None for an input that takes ids only.
    rate: the samples in a second, of vectors that are the samples of a sound; None for others.
    """

    kind: str
    vocabulary: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    of: str | None = None
    longest: int | None = None
    tokenizer: str | None = None
    rate: int | None = None

    @property
    def is_sequence(self) -> bool:
        """Whether it has positions of its own."""
        return self.kind in ("tokens", "vectors") and self.of is None

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
