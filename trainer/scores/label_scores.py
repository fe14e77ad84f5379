"""Scores the labels that an engine predicts against those of a test set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.tokens import IGNORE
from xformc.runtime import Engine
from xformc.runtime.kinds.kind import kind_of
from xformc.runtime.kinds.labels import Prediction
from xformc.trainer.data.label_names import COLUMN, label_ids, require_one_each
from xformc.trainer.data.npz import Arrays, label_ids_of
from xformc.trainer.data.text_files import Texts
from xformc.trainer.scores.metrics import Measure, label_measures

Ids = NDArray[np.int64]


def score_labels(engine: Engine, data: Texts | Arrays, *, truncate: bool = False) -> tuple[list[Measure], list[str]]:
    """Score the most likely labels by accuracy and macro F1; positions cut off by `truncate` count as wrong.

    Returns the measures, and the labels of each example as a line.

    Raises: UserError as `Engine.predict`, or for labels that the engine does not know.
    """
    names, each = engine.manifest.labels, engine.manifest.positions is not None
    assert names is not None
    wanted = _wanted_of_texts(data, names, each) if isinstance(data, Texts) else _wanted_of_arrays(data, names)
    predictions = _predict(engine, data, truncate)
    ids = {name: index for index, name in enumerate(names)}
    found = [[ids[label] for label in prediction.labels] for prediction in predictions]
    pairs = [aligned(row, labels, len(names)) for row, labels in zip(found, wanted, strict=True)]
    both = np.concatenate(pairs, axis=1)
    measures = label_measures(both[0], both[1], len(names), "positions" if each else "examples")
    (result,) = engine.manifest.results.values()
    return measures, [kind_of(result).line(prediction) for prediction in predictions]


def _predict(engine: Engine, data: Texts | Arrays, truncate: bool) -> list[Prediction]:
    if isinstance(data, Arrays):
        return engine.predict({name: array for name, array in data.arrays.items() if name != COLUMN})
    if data.arrays:
        rows = zip(*data.arrays.values(), strict=True)
        return engine.predict_rows([dict(zip(data.arrays, row, strict=True)) for row in rows])
    inputs = [texts for name, texts in data.columns.items() if name != COLUMN]
    examples: Sequence[Any] = inputs[0] if len(inputs) == 1 else list(zip(*inputs, strict=True))
    return list(engine.predict_stream(examples, truncate=truncate))


def _wanted_of_texts(texts: Texts, names: Sequence[str], each: bool) -> list[Ids]:
    rows = label_ids(texts, names, each=each)
    if each:
        words = next(column for name, column in texts.columns.items() if name != COLUMN)
        require_one_each(texts, {"words": [len(text.split()) for text in words], "labels": list(map(len, rows))})
    return [np.array(row, np.int64) for row in rows]


def _wanted_of_arrays(arrays: Arrays, names: Sequence[str]) -> list[Ids]:
    labels = arrays.arrays.get(COLUMN)
    if labels is None or labels.dtype.kind not in "iuU" or labels.ndim not in (1, 2):
        raise UserError(f"'{COLUMN}' must be int or text, one for each example or position", place=str(arrays.path))
    ids = label_ids_of(labels, names)
    if not ((ids == IGNORE) | ((ids >= 0) & (ids < len(names)))).all():
        raise UserError(f"'{COLUMN}' has labels that the model does not know", place=str(arrays.path))
    return [np.atleast_1d(row) for row in ids]


def aligned(found: Sequence[int], wanted: Ids, classes: int) -> Ids:
    """Return int64 [2, labels]: the predicted and the wanted ids of labelled positions; a missing one is `classes`."""
    row = np.full(len(wanted), classes, np.int64)
    row[: len(found)] = found[: len(wanted)]
    return np.stack([row, wanted])[:, wanted != IGNORE]
