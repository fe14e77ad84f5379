"""Random examples for certificates, of different lengths, for all kinds of inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.subject import Feeds
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.program import Program
from xformc.format.inputs import Input
from xformc.runtime.rows import Row, random_ids, row_lengths, stack

LENGTHS = ((1, 4, 9, 17), (5, 2, 11, 7), (3, 12, 1, 6))
"""The numbers of tokens (without the end token) or vectors of the examples, for the first input, the second, ..."""


FARTHEST = 64
"""The largest reach of windows and convolutions for which an example is made longer than the reach."""


@dataclass(frozen=True)
class Probes:
    """The examples, separately and as a batch. `reals` are true where the results are not padding, in their order."""

    rows: tuple[Row, ...]
    feeds: Feeds
    reals: tuple[NDArray[np.bool_], ...]

    @property
    def real(self) -> NDArray[np.bool_]:
        """Where the first result is not padding."""
        return self.reals[0]


def make_probes(program: Program, seed: int = 0) -> Probes:
    """Random examples; the decoded input starts with the begin token, other token inputs end with the end token."""
    random = np.random.default_rng(seed)
    time = program.written
    sequences = [name for name, item in program.inputs.items() if item.is_sequence]
    beyond = min(_reach(program.graph), FARTHEST) + 2
    lengths = {name: _stretched(LENGTHS[index % len(LENGTHS)], beyond) for index, name in enumerate(sequences)}
    rows: list[Row] = []
    for index in range(len(LENGTHS[0])):
        row: dict[str, NDArray[Any]] = {}
        for name, item in program.inputs.items():
            row[name] = _VALUES[item.kind](random, item, _length(lengths, name, index, program), name == time)
        rows.append(row)
    feeds = stack(program.inputs, rows)
    reals = (_real(program.along(value), rows) for value in program.graph.outputs)
    return Probes(tuple(rows), feeds, tuple(reals))


def make_sources(program: Program, lengths: Sequence[int]) -> tuple[Row, ...]:
    """Random sources with these numbers of tokens, without the end token, or vectors."""
    random = np.random.default_rng(1)
    each = {name: tuple(lengths) for name, item in program.given.items() if item.is_sequence}
    return tuple(
        {
            name: _VALUES[item.kind](random, item, _length(each, name, index, program), False)
            for name, item in program.given.items()
        }
        for index in range(len(lengths))
    )


def source_positions(program: Program, source: Row) -> int:
    """The number of positions of a source by which a search limits its texts; 0 without positions."""
    return next(iter(row_lengths(program.given, source).values()), 0)


def sentence(random: np.random.Generator, length: int, declared: Input) -> NDArray[np.int64]:
    """`length` random tokens, or as many as the model accepts, and what comes after a text."""
    after = declared.special.after
    length = length if declared.longest is None else min(length, declared.longest - len(after))
    return np.append(random_ids(random, declared, length), np.array(after, np.int64))


def _reach(graph: Graph) -> int:
    """The number of positions that the widest window or convolution sees, or 0."""
    windows = [node.op.window or 0 for node in graph.nodes if isinstance(node.op, AsKeys)]
    convolutions = [
        max(node.op.reach(node.inputs[1].type)) + 1 for node in graph.nodes if isinstance(node.op, Convolution)
    ]
    return max([*windows, *convolutions], default=0)


def _stretched(lengths: tuple[int, ...], beyond: int) -> tuple[int, ...]:
    """The lengths, with the longest raised to at least `beyond`."""
    longest = max(lengths)
    return tuple(max(length, beyond) if length == longest else length for length in lengths)


def _length(lengths: Mapping[str, tuple[int, ...]], name: str, index: int, program: Program) -> int:
    of = program.inputs[name].of
    if of is not None:
        positions = _length(lengths, of, index, program) + (program.inputs[of].kind == "tokens")
        return positions - (program.inputs[name].kind == "tokens")
    wanted, longest = lengths.get(name, (0,) * (index + 1))[index], program.inputs[name].longest
    return wanted if longest is None else min(wanted, longest - (program.inputs[name].kind == "tokens"))


def _tokens(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    ids = sentence(random, length, declared)
    return np.concatenate((declared.special.begun, ids[: len(ids) - len(declared.special.begun)])) if decoded else ids


def _vectors(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return random.standard_normal((length, *declared.axes.values()), np.float32)


def _values(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return random.standard_normal(tuple(declared.axes.values()), np.float32)


def _edges(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return (random.random((length, length)) < 0.4) | np.eye(length, dtype=np.bool_)


_VALUES = {"tokens": _tokens, "vectors": _vectors, "values": _values, "edges": _edges}


def _real(along: str | None, rows: list[Row]) -> NDArray[np.bool_]:
    if along is None:
        return np.ones(len(rows), np.bool_)
    real = np.zeros((len(rows), max(len(row[along]) for row in rows)), np.bool_)
    for index, row in enumerate(rows):
        real[index, : len(row[along])] = True
    return real
