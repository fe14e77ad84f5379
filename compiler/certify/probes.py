"""Random examples for a certificate: for each input of a model, whatever it holds, of different lengths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.subject import Feeds
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.program import Program
from xformc.compiler.spec.tasks import TASKS
from xformc.format.manifest import Input
from xformc.format.tokens import BEGIN, END
from xformc.runtime.rows import Row, stack

LENGTHS = ((1, 4, 9, 17), (5, 2, 11, 7), (3, 12, 1, 6))
"""How many tokens or vectors the examples have, before the end token: of the first input, of the second, and so on."""


FARTHEST = 64
"""Windows and convolutions that see farther than this are not looked beyond."""


@dataclass(frozen=True)
class Probes:
    """The same examples, each by itself and all together. `real` is true at the results that are not padding."""

    rows: tuple[Row, ...]
    feeds: Feeds
    real: NDArray[np.bool_]


def make_probes(program: Program, seed: int = 0) -> Probes:
    """Random examples; the input that is decoded begins with the begin token, the other tokens end with the end one."""
    random = np.random.default_rng(seed)
    time = TASKS[program.task].time
    sequences = [name for name, item in program.inputs.items() if item.kind in ("tokens", "vectors")]
    beyond = min(_reach(program.graph), FARTHEST) + 2
    lengths = {name: _stretched(LENGTHS[index % len(LENGTHS)], beyond) for index, name in enumerate(sequences)}
    rows: list[Row] = []
    for index in range(len(LENGTHS[0])):
        row: dict[str, NDArray[Any]] = {}
        for name, item in program.inputs.items():
            row[name] = _VALUES[item.kind](random, item, _length(lengths, name, index, program), name == time)
        rows.append(row)
    feeds = stack(program.inputs, rows)
    return Probes(tuple(rows), feeds, _real(program, rows))


def sentence(random: np.random.Generator, length: int, declared: Input) -> NDArray[np.int64]:
    """So many real pieces, or fewer where the model takes fewer, and the end token."""
    length = length if declared.longest is None else min(length, declared.longest - 1)
    return np.append(random.integers(END + 1, declared.pieces, length), END)


def _reach(graph: Graph) -> int:
    """How many positions the widest window or convolution sees; 0 where there is none."""
    windows = [node.op.window or 0 for node in graph.nodes if isinstance(node.op, AsKeys)]
    convolutions = [node.op.reach(node.inputs[1].type) + 1 for node in graph.nodes if isinstance(node.op, Convolution)]
    return max([*windows, *convolutions], default=0)


def _stretched(lengths: tuple[int, ...], beyond: int) -> tuple[int, ...]:
    """The same lengths, the longest of them at least `beyond`."""
    longest = max(lengths)
    return tuple(max(length, beyond) if length == longest else length for length in lengths)


def _length(lengths: Mapping[str, tuple[int, ...]], name: str, index: int, program: Program) -> int:
    of = program.inputs[name].of
    if of is not None:
        return _length(lengths, of, index, program) + (program.inputs[of].kind == "tokens")
    wanted, longest = lengths.get(name, (0,) * (index + 1))[index], program.inputs[name].longest
    return wanted if longest is None else min(wanted, longest - (program.inputs[name].kind == "tokens"))


def _tokens(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    ids = sentence(random, length, declared)
    return np.concatenate(([BEGIN], ids[:-1])) if decoded else ids


def _vectors(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return random.standard_normal((length, *declared.axes.values()), np.float32)


def _values(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return random.standard_normal(tuple(declared.axes.values()), np.float32)


def _edges(random: np.random.Generator, declared: Input, length: int, decoded: bool) -> NDArray[Any]:
    return (random.random((length, length)) < 0.4) | np.eye(length, dtype=np.bool_)


_VALUES = {"tokens": _tokens, "vectors": _vectors, "values": _values, "edges": _edges}


def _real(program: Program, rows: list[Row]) -> NDArray[np.bool_]:
    along = TASKS[program.task].time or program.positions
    if along is None:
        return np.ones(len(rows), np.bool_)
    real = np.zeros((len(rows), max(len(row[along]) for row in rows)), np.bool_)
    for index, row in enumerate(rows):
        real[index, : len(row[along])] = True
    return real
