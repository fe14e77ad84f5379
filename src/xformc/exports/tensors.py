"""Makes the tensors of a family from the parameters of a spec, the rows of its table backwards, and rounds them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal

import numpy as np
import torch

from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.linear import Linear
from xformc.errors import UserError
from xformc.exports.source import Array
from xformc.imports.config import Config
from xformc.imports.family import Family
from xformc.imports.weights import Row, family_row, lengths_of

Format = Literal["float32", "float16", "bfloat16"]
FORMATS: Mapping[Format, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def rounded(arrays: Mapping[str, Array], precision: Format) -> dict[str, torch.Tensor]:
    """The arrays in a number format. Raises: UserError that names those with numbers too large for it."""
    stored = {name: torch.as_tensor(_writable(array)).to(FORMATS[precision]) for name, array in arrays.items()}
    broken = [name for name, tensor in stored.items() if not tensor.isfinite().all()]
    if broken:
        raise UserError(f"too large for {precision}: {', '.join(broken[:8])}", hint="export in float32 or bfloat16")
    return stored


def _writable(array: Array) -> Array:
    """The array, or a copy of one that PyTorch does not take as it is: the weights of engines are mapped."""
    return array if array.flags.writeable else array.copy()


def foreign_tensors(family: Family, config: Config, graph: Graph, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors by their names there, in float32. Rows that no parameter is from are 0.

    Raises: UserError that names the parameters without a row, or that the family has as one tensor and differ.
    """
    rows = {path: family_row(family, config, path, ()) for path in arrays}
    without = [path for path, row in rows.items() if row is None]
    if without:
        raise UserError(f"{family.name} has no weights for {', '.join(without[:12])}")
    shapes = _matrices(graph)
    pieces: dict[str, list[tuple[Row, Array, str]]] = {}
    for path, row in rows.items():
        assert row is not None
        piece = arrays[path] if len(row.axes or ()) > 2 else arrays[path].reshape(shapes[path])
        pieces.setdefault(row.source, []).append((row, piece - np.float32(row.plus) if row.plus else piece, path))
    found = {name: _stacked(one) for name, one in pieces.items()}
    rows_with_gain = [row for one in pieces.values() for row, _, _ in one if row.gain is not None]
    lengths = {row.gain: lengths_of(found[row.source], row.gain_axis) for row in rows_with_gain if row.gain}
    return {family.full_name(name): array for name, array in {**found, **lengths}.items()}


def _matrices(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter with the axes of a linear map merged: [out, in], and [out] of a bias."""
    shapes: dict[str, tuple[int, ...]] = {parameter.name: parameter.type.sizes() for parameter in graph.parameters}
    for node in graph.nodes:
        if isinstance(node.op, Linear):
            weight, *bias = node.inputs[1:]
            sizes = weight.type.sizes()
            new = len(sizes) - len(node.op.over)
            shapes[weight.name] = (prod(sizes[:new]), prod(sizes[new:]))
            shapes |= {value.name: (prod(value.type.sizes()),) for value in bias}
    return shapes


def _stacked(pieces: Sequence[tuple[Row, Array, str]]) -> Array:
    """The tensor whose parts these are, a stack if they are picked from one."""
    picks: dict[int | None, list[tuple[Row, Array, str]]] = {}
    for piece in pieces:
        picks.setdefault(piece[0].pick, []).append(piece)
    parts = [_assembled(one) for _, one in sorted(picks.items(), key=lambda item: item[0] or 0)]
    return parts[0] if None in picks else np.stack(parts)


def _assembled(pieces: Sequence[tuple[Row, Array, str]]) -> Array:
    """The tensor whose parts these are."""
    first = pieces[0][0]
    if first.rows is not None:
        count = first.groups * max(row.rows[1] for row, _, _ in pieces if row.rows)
        array = np.zeros(first.shape_there or (count, *pieces[0][1].shape[1:]), np.float32)
        for row, piece, _ in pieces:
            assert row.rows is not None
            start, stop = row.rows
            grouped = array.reshape(row.groups, -1, *array.shape[1:])
            grouped[:, start:stop] = piece.reshape(row.groups, stop - start, *array.shape[1:])
    elif first.of > 1:
        array = _joined(pieces)
    else:
        array = _one(pieces)
    array = array[np.argsort(first.order(len(array)))] if first.first else array
    array = array if first.axes is None else array.transpose(np.argsort(first.axes))
    return np.array(array if first.shape_there is None else array.reshape(first.shape_there), order="C")


def _joined(pieces: Sequence[tuple[Row, Array, str]]) -> Array:
    """Equal parts of the rows of each group, next to each other."""
    parts: dict[int, list[tuple[Row, Array, str]]] = {}
    for piece in pieces:
        parts.setdefault(piece[0].part, []).append(piece)
    row = pieces[0][0]
    if len(parts) < row.of:
        raise UserError(f"the table fills {len(parts)} of {row.of} parts of {row.source}")
    groups = [_one(parts[index]) for index in range(row.of)]
    grouped = [array.reshape(row.each, -1, *array.shape[1:]) for array in groups]
    return np.stack(grouped, 1).reshape(-1, *groups[0].shape[1:])


def _one(pieces: Sequence[tuple[Row, Array, str]]) -> Array:
    """The one array of several parameters that the family has as one tensor."""
    (_, array, path), *others = pieces
    for row, other, name in others:
        if not np.array_equal(array, other):
            raise UserError(f"the family has {path} and {name} as one tensor, {row.source}, and they differ")
    return array
