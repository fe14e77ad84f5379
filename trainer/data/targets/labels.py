"""Labels: one, or several at once; of an example, or of each of its positions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xformc.format.tokens import IGNORE
from xformc.trainer.data.columns import Column, Counts, Sequences, Values, inside, pack
from xformc.trainer.data.label_names import label_names, some
from xformc.trainer.data.targets.target import Cells, Names, Target, TargetKind, numbers_column, register

NONE = "-"
"""A position without a label, or an example without any of several labels."""


class Labels(TargetKind):
    """In texts, positions are separated by spaces; several labels at once by commas, or by spaces without positions.

    Arrays hold ids or texts; for several labels at once 0 or 1 for each label.
    """

    name = "labels"

    def labels(self, target: Target, cells: Cells) -> Names:
        """See `TargetKind`."""
        texts = cells.texts
        if texts is None:
            return tuple(map(str, range(target.sizes[-1])))
        found = {label for text in texts for part in _parts(target, text) for label in part}
        return label_names(found, target.sizes[-1], cells.place)

    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        """See `TargetKind`."""
        texts = cells.texts
        if target.settings.get("several"):
            numeric = texts is None
            return numbers_column(target, cells if numeric else _indicators(target, cells, labels, lengths), lengths)
        if texts is None:
            return _ids_column(target, cells, lengths)
        rows = _ids(target, cells, labels)
        if target.positions is None:
            return Values(np.array([row[0] for row in rows]), whole=True)
        for index, (row, wanted) in enumerate(zip(rows, lengths, strict=True)):
            if len(row) != wanted:
                raise cells.refuse(index, f"{wanted} words and {len(row)} labels of '{target.name}'")
        return replace(pack(rows), fill=IGNORE)


def _parts(target: Target, text: str) -> list[list[str]]:
    """The labels of each position, or of the whole text as the only one."""
    several = bool(target.settings.get("several"))
    parts = text.split() if target.positions else [text]
    split = [part.replace(",", " ").split() if several else [part] for part in parts]
    return [[label for label in part if label != NONE] for part in split]


def _ids(target: Target, cells: Cells, labels: Names) -> list[list[int]]:
    known = {name: index for index, name in enumerate(labels)}
    rows: list[list[int]] = []
    for index, text in enumerate(cells.texts or ()):
        parts = _parts(target, text)
        _require(cells, index, [label for part in parts for label in part if label not in known], labels)
        rows.append([known[part[0]] if part else IGNORE for part in parts])
    return rows


def _indicators(target: Target, cells: Cells, labels: Names, lengths: Counts) -> Cells:
    known = {name: index for index, name in enumerate(labels)}
    shape = (int(lengths.max(initial=0)),) if target.positions else ()
    array = np.zeros((len(cells.content), *shape, len(labels)), np.float32)
    for index, text in enumerate(cells.texts or ()):
        parts = _parts(target, text)
        _require(cells, index, [label for part in parts for label in part if label not in known], labels)
        if target.positions and len(parts) != lengths[index]:
            raise cells.refuse(index, f"{lengths[index]} words and {len(parts)} labels of '{target.name}'")
        for position, part in enumerate(parts):
            where = (index, position) if target.positions else (index,)
            array[(*where, [known[label] for label in part])] = 1.0
    return Cells(array, cells.place)


def _require(cells: Cells, row: int, unknown: Sequence[str], labels: Names) -> None:
    if unknown:
        hint = f"the labels are {some(labels)}"
        raise cells.refuse(row, f"labels that the model does not know: {some(unknown)}", hint)


def _ids_column(target: Target, cells: Cells, lengths: Counts) -> Column:
    array, classes = cells.array, target.sizes[-1]
    wanted = f"'{target.name}' must be from 0 to {classes - 1}, or {IGNORE} where there is none"
    if array.dtype.kind not in "iu" or array.ndim != (1 if target.positions is None else 2):
        raise cells.refuse(0, f"{wanted}, found {array.dtype} {list(array.shape)}")
    if not ((array == IGNORE) | ((array >= 0) & (array < classes))).all():
        raise cells.refuse(int(np.argmax((array >= classes).reshape(len(array), -1).any(1))), wanted)
    if target.positions is None:
        return Values(array.astype(np.int64), whole=True)
    if array.shape[1] < int(lengths.max(initial=0)):
        raise cells.refuse(0, f"'{target.name}' must cover all positions of '{target.positions}'")
    ends = np.cumsum(lengths)
    return Sequences(array[inside(lengths, array.shape[1])].astype(np.int64), ends - lengths, ends, IGNORE)


register(Labels())
