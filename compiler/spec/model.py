"""The parts of a spec's model, parsed and with their names checked: what a graph is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.problems import Span
from xformc.compiler.spec.syntax import Block, Inline
from xformc.compiler.spec.tree import Tree

MAX_AXIS = 2**31 - 1
"""The most that an axis may have."""

Ties = tuple[tuple[tuple[str, Span], ...], ...]


InputKind = Literal["tokens", "vectors", "values", "edges"]


@dataclass(frozen=True)
class Input:
    """An input of the model, and where it is declared.

    `axes`: of tokens the vocabulary; of vectors their width; of values all but the batch. Edges have none: `of` is the
    input whose positions they join.
    """

    kind: InputKind
    axes: tuple[Axis, ...]
    of: str | None
    span: Span = field(repr=False, compare=False)

    @property
    def vocabulary(self) -> int:
        """How many pieces there are; for tokens only."""
        assert self.kind == "tokens", f"an input of {self.kind} has no vocabulary"
        return self.axes[0].size or 0

    @property
    def is_sequence(self) -> bool:
        """Whether it has positions: any number of them, along an axis that has the name of the input."""
        return self.kind in ("tokens", "vectors")

    def type(self, name: str) -> Type:
        """The type of the graph's input; the input is called `name`."""
        batch, positions = Axis("batch"), Axis(name)
        if self.kind == "tokens":
            return Type("int64", (batch, positions))
        if self.kind == "vectors":
            return Type("float32", (batch, positions, *self.axes))
        if self.kind == "values":
            return Type("float32", (batch, *self.axes))
        return Type("bool", (batch, Axis(f"{self.of}"), Axis(f"{self.of}_keys")))


@dataclass(frozen=True)
class Model:
    """What a graph is made of. `declared` has what is written for each size, `ties` each path's place."""

    sizes: Mapping[str, Number]
    declared: Mapping[str, Tree]
    choices: Mapping[str, Tree]
    inputs: Mapping[str, Input]
    blocks: Mapping[str, Block]
    stages: Mapping[str, Inline]
    ties: Ties
