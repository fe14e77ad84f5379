"""Scores the results of engines whose specs declare them, each kind by its own measures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.results.kind import KINDS
from xformc.compiler.spec import Spec, load_spec
from xformc.format.names import SPEC
from xformc.runtime import Engine
from xformc.runtime.kinds.kind import kind_of
from xformc.runtime.options import BeamArguments
from xformc.runtime.rows import Row
from xformc.trainer.data.batches import Examples
from xformc.trainer.data.columns import Column, Pairs, Sequences, Values
from xformc.trainer.data.data_schema import DataSchema, data_schema
from xformc.trainer.data.dataset import Split, encode_split, reads_text
from xformc.trainer.data.result_examples import result_texts
from xformc.trainer.data.targets.target import Target
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.scores.label_scores import aligned
from xformc.trainer.scores.metrics import Measure, label_measures, text_measures, token_measures, translation_measures

Array = NDArray[Any]
EVERY = 1 << 40
"""No example of a test set is too long to be scored."""


def scored_schema(spec: Spec) -> DataSchema:
    """The schema of the data that an engine of this spec is scored on."""
    return replace(data_schema(spec), longest=EVERY)


def score_results(
    engine: Engine, folder: Path, data: Split, bleu: Any, options: BeamArguments
) -> tuple[list[Measure], list[str]]:
    """Score all results of the engine in this folder, and return the measures and a line for each example.

    bleu: sacreBLEU's, for a text that the engine writes. options: those of its search.
    """
    spec = load_spec(folder / SPEC)
    schema = scored_schema(spec)
    tokenizer = load_for(schema, spec.train.tokenizer, folder) if reads_text(data, schema) else None
    labels = {name: result.labels or () for name, result in engine.manifest.results.items()}
    examples = encode_split(data, schema, tokenizer, labels)
    found = _run(engine, examples, options)
    measures: list[Measure] = []
    for target in schema.targets:
        values = [one[target.name] for one in found]
        column = examples.targets[target.input]
        if engine.tokenizer is not None and KINDS[target.kind].tokenized:
            right = _given(data, schema, examples, target.name) or _decoded(engine, column, target.name)
            made = text_measures([str(one.text) for one in values], right)
        else:
            made = SCORES[target.kind](target, values, column, labels[target.name])
        measures += [replace(one, key=f"{target.name}_{one.key}", name=f"{target.name} {one.name}") for one in made]
    if schema.written is not None:
        right = _given(data, schema, examples, schema.written) or _written(engine, examples, schema.written)
        texts = [one[schema.written] for one in found]
        chrf, _, words = translation_measures(texts, [right], bleu)
        measures = [*text_measures(texts, right), chrf, words, *measures]
    return measures, ["\t".join(_line(engine, name, value) for name, value in one.items()) for one in found]


def _run(engine: Engine, examples: Examples, options: BeamArguments) -> list[dict[str, Any]]:
    """The results of each row, by name; the second rows of pairs come after the first ones."""
    rows = rows_of(examples, engine.manifest.given)
    if engine.manifest.decoding == "forward":
        return [dict(one.results) for one in engine.predict_rows(rows)]
    written = engine.manifest.written
    return [{written: best.text, **best.results} for best, *_ in engine.transcribe_rows(rows, **options)]


def _line(engine: Engine, name: str, value: Any) -> str:
    result = engine.manifest.results[name]
    return value if result.kind == "text" else kind_of(result).line(value)


def rows_of(examples: Examples, inputs: Mapping[str, Any]) -> list[Row]:
    """The examples as the engine's rows."""
    columns = {name: _items(examples.inputs[name]) for name in inputs}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _items(column: Column) -> list[Array]:
    """Each row of a column, without padding."""
    if isinstance(column, Pairs):
        return _items(column.column)
    if isinstance(column, Sequences):
        return [column.items[start:end] for start, end in zip(column.starts, column.ends, strict=True)]
    if isinstance(column, Values):
        return list(column.array)
    rows = (column.tensors("x", np.array([row]), int(column.lengths()[row]))["x"] for row in range(len(column)))
    return [row[0].numpy() for row in rows]


def _written(engine: Engine, examples: Examples, name: str) -> list[str]:
    whole = examples.inputs[name]
    assert isinstance(whole, Sequences)
    return _decoded(engine, replace(whole, starts=whole.starts + 1), name)


def _given(data: Split, schema: DataSchema, examples: Examples, name: str) -> list[str] | None:
    """The texts that a result is compared with, with all that the vocabulary lacks; None if the data has ids."""
    texts = result_texts(data, schema, name)
    kept = examples.kept
    return texts if texts is None or kept is None else list(compress(texts, kept))


def _decoded(engine: Engine, column: Column, name: str) -> list[str]:
    assert engine.tokenizer is not None
    return [engine.tokenizer.decode(name, [int(one) for one in row]) for row in _items(column)]


def _labels(target: Target, values: Sequence[Any], column: Column, labels: Sequence[str]) -> list[Measure]:
    wanted, what = _items(column), "positions" if target.positions else "examples"
    if target.settings.get("several"):
        return _several(values, wanted, what)
    found = [one.probabilities.argmax(-1) for one in values]
    pairs = [aligned(row, np.atleast_1d(right), len(labels)) for row, right in zip(found, wanted, strict=True)]
    both = np.concatenate(pairs, axis=1)
    return label_measures(both[0], both[1], len(labels), what)


def _several(values: Sequence[Any], wanted: Sequence[Array], what: str) -> list[Measure]:
    found = np.concatenate([one.probabilities >= 0.5 for one in values])
    right = np.concatenate([row.reshape(-1, found.shape[1]) for row in wanted])
    known = ~np.isnan(right).any(1)
    found, right = found[known], right[known] == 1
    hits, exact = int((found & right).sum()), int((found == right).all(1).sum())
    total = int(found.sum() + right.sum())
    f1 = 2 * hits / total if total else 1.0
    share = exact / max(len(right), 1)
    return [
        Measure("micro_f1", "micro F1", f1, f"{hits:,} labels right", True),
        Measure("exact_match", "exact match", share, f"{exact:,} of {len(right):,} {what}", True),
    ]


def _numbers(target: Target, values: Sequence[Any], column: Column, labels: Sequence[str]) -> list[Measure]:
    found = np.concatenate([np.asarray(one, np.float64).reshape(-1) for one in values])
    wanted = np.concatenate([np.asarray(row, np.float64).reshape(-1) for row in _items(column)])
    known = ~np.isnan(wanted)
    found, wanted = found[known], wanted[known]
    error, count = found - wanted, f"over {len(wanted):,} numbers"
    measures = [
        Measure("mae", "mean error", float(np.abs(error).mean()), f"absolute, {count}"),
        Measure("rmse", "RMSE", float(np.sqrt((error**2).mean())), count),
    ]
    if len(wanted) > 1 and found.std() > 0 and wanted.std() > 0:
        measures.append(Measure("pearson", "Pearson r", float(np.corrcoef(found, wanted)[0, 1]), count))
    return measures


def _vectors(target: Target, values: Sequence[Any], column: Column, labels: Sequence[str]) -> list[Measure]:
    vectors = np.stack([np.asarray(one, np.float64) for one in values])
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    first, second = np.split(vectors, 2)
    scores = first @ second.T
    ranks = (scores >= np.diag(scores)[:, None]).sum(1) - 1  # ties are misses, so that equal vectors find nothing
    hits, count = int((ranks == 0).sum()), len(ranks)
    mean = float((1 / (1 + ranks)).mean())
    return [
        Measure("recall_1", "recall at 1", hits / count, f"{hits:,} of {count:,}, among as many", True),
        Measure("mrr", "MRR", mean, "mean reciprocal rank", True),
    ]


def _ctc(target: Target, values: Sequence[Any], column: Column, labels: Sequence[str]) -> list[Measure]:
    """The error rate of tokens, of an engine without a tokenizer."""
    return token_measures([one.tokens for one in values], [tuple(map(int, row)) for row in _items(column)])


Score = Callable[[Target, Sequence[Any], Column, Sequence[str]], list[Measure]]

SCORES: dict[str, Score] = {"ctc": _ctc, "labels": _labels, "numbers": _numbers, "vectors": _vectors}
"""The measures of each kind of result."""
