"""The parts of a spec's model, parsed and with their names checked: what a graph is made of."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.problems import Span
from xformc.compiler.spec.syntax import Block, Inline
from xformc.compiler.spec.tree import Tree

MAX_AXIS = 2**31 - 1
"""The most that an axis may have."""

Ties = tuple[tuple[tuple[str, Span], ...], ...]


@dataclass(frozen=True)
class Tokens:
    """An input of tokens: the axis of its vocabulary, and where it is declared."""

    vocabulary: Axis
    span: Span


@dataclass(frozen=True)
class Model:
    """What a graph is made of. `declared` has what is written for each size, `ties` each path's place."""

    sizes: Mapping[str, Number]
    declared: Mapping[str, Tree]
    choices: Mapping[str, Tree]
    inputs: Mapping[str, Tokens]
    blocks: Mapping[str, Block]
    stages: Mapping[str, Inline]
    ties: Ties
