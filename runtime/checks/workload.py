"""The examples that an engine is timed on: texts, or random examples for its task."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest
from xformc.runtime.engine import Engine
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.kinds.kind import kind_of
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.options import SearchArguments, resolve_options
from xformc.runtime.predict import positions_needed, predict_rows
from xformc.runtime.rows import Row, random_ids, row_lengths
from xformc.runtime.searching.translate import (
    PROMPT,
    SEED,
    drawn_tokens_needed,
    sample_rows,
    search_rows,
    tokens_needed,
)
from xformc.runtime.session import Session
from xformc.runtime.stream import Batching
from xformc.runtime.text.lines import read_text_file

COUNT = 1000
"""The number of random examples."""

SHORTEST, LONGEST = 5, 45
"""The bounds of a random example's tokens; all lengths are equally likely."""

Run = Callable[[Sequence[Any], Batching], Generator[int]]


@dataclass(frozen=True)
class Workload:
    """Examples to time an engine on.

    unit: the name of an example. tokens: the name of the units counted in its result.
    run: runs items with a batching, and yields the number of tokens of each result, in order.
    """

    items: Sequence[Any]
    unit: str
    tokens: str
    run: Run


def make_workload(engine: Engine, file: Path | None, options: SearchArguments) -> Workload:
    """Return the lines of a file, or random examples for None. Raises: UserError as `text_workload`, at the file."""
    if file is None:
        return random_workload(engine, options)
    try:
        return text_workload(engine, read_text_file(file), options)
    except UserError as error:
        raise error if error.place else UserError(error.message, place=str(file), hint=error.hint) from error


def text_workload(engine: Engine, texts: Sequence[str], options: SearchArguments) -> Workload:
    """Return the texts that are not empty as a workload. With several inputs, a line has tab-separated texts.

    Raises: UserError if all texts are empty, and as the engine's methods for a text that does not fit.
    """
    items = [text for text in texts if text.strip()]
    if not items:
        raise UserError("holds no text")
    decoding = engine.manifest.decoding
    unit, tokens = NAMES[decoding]

    def run(items: Sequence[Any], batching: Batching) -> Generator[int]:
        common: Any = {
            "window": batching.window,
            "workers": batching.workers,
            "max_batch_tokens": batching.max_batch_tokens,
            "truncate": True,
        }
        if engine.manifest.task == "translation":
            return (len(best.tokens) for best, *_ in engine.translate_stream(items, **common, **options))
        if engine.manifest.task == "language_model":
            return (len(one.tokens) for one in engine.generate_stream(items, **common))
        several = len(engine.manifest.given) > 1
        examples = (item.split("\t") if several else item for item in items)
        if decoding != "forward":
            return (len(best.tokens) for best, *_ in engine.transcribe_stream(examples, **common, **options))
        return (count_results(engine.manifest, one) for one in engine.predict_stream(examples, **common))

    return Workload(items, unit, tokens, run)


def random_workload(engine: Engine, options: SearchArguments, count: int = COUNT) -> Workload:
    """Return seeded random examples as ids or arrays; no tokenizer is needed or timed."""
    manifest, random = engine.manifest, np.random.default_rng(0)
    unit, tokens = NAMES[manifest.decoding]
    lengths = [int(length) for length in random.integers(SHORTEST, LONGEST + 1, count)]
    if manifest.decoding == "search":
        job = _searches(engine, options)
        items: list[Any] = [_row(random, manifest.given, length) for length in lengths]
    elif manifest.decoding == "sample":
        job, text = _continuations(engine), manifest.inputs[manifest.written]
        if manifest.given:
            rows = [_row(random, manifest.given, length) for length in lengths]
        else:
            rows = [{PROMPT: np.array(_ids(random, text, length)[:-1], np.int64)} for length in lengths]
        items = [{**row, SEED: np.array(index)} for index, row in enumerate(rows)]
    else:
        job = _predictions(engine)
        items = [_row(random, manifest.inputs, length) for length in lengths]
    return Workload(items, unit, tokens, partial(job.stream, engine.session))


NAMES = {
    "search": ("sentence", "tokens written"),
    "sample": ("prompt", "tokens written"),
    "forward": ("example", "results"),
}
"""The name of an example, and of the units counted in its result, by how the engine computes."""


def _searches(engine: Engine, options: SearchArguments) -> Job[Row, Row, int]:
    manifest, resolved = engine.manifest, resolve_options(engine.manifest, options)

    def run(session: Session, rows: Sequence[Row]) -> list[int]:
        return [int(length) for length in search_rows(session, rows, manifest, resolved).lengths[:, 0]]

    longest = manifest.inputs[manifest.written].longest
    needed = partial(tokens_needed, inputs=manifest.given, options=resolved, longest=longest)
    return Job(as_it_is, needed, run)


def _continuations(engine: Engine) -> Job[Row, Row, int]:
    manifest, options = engine.manifest, engine.manifest.sampling

    def run(session: Session, rows: Sequence[Row]) -> list[int]:
        return [int(length) for length in sample_rows(session, rows, manifest, options).lengths[:, 0]]

    return Job(as_it_is, partial(drawn_tokens_needed, inputs=manifest.given, options=options), run)


def _predictions(engine: Engine) -> Job[Row, Row, int]:
    manifest = engine.manifest

    def run(session: Session, rows: Sequence[Row]) -> list[int]:
        return [count_results(manifest, found) for found in predict_rows(session, rows, manifest=manifest)]

    return Job(as_it_is, partial(positions_needed, inputs=manifest.inputs), run)


def count_results(manifest: Manifest, found: Prediction) -> int:
    """Return the number of results of an example: its labels, for example."""
    named = found.results or {next(iter(manifest.results)): found}
    return sum(kind_of(result).count(named[name]) for name, result in manifest.results.items())


def _ids(random: np.random.Generator, item: Input, length: int) -> list[int]:
    """Return random ids as a text has them, at most as many as the input takes."""
    length = length if item.longest is None else min(length, item.longest)
    after = item.special.after
    return [*map(int, random_ids(random, item, length - len(after))), *after]


def _row(random: np.random.Generator, inputs: Mapping[str, Input], length: int) -> Row:
    """Return a random value for each input; edges join all positions."""
    row: dict[str, Any] = {}
    for name, item in inputs.items():
        longest = (item if item.of is None else inputs[item.of]).longest
        sizes, positions = tuple(item.axes.values()), min(length, longest or length)
        if item.kind == "tokens":
            row[name] = np.array(_ids(random, item, positions), np.int64)
        elif item.kind != "edges":
            shape = (positions, *sizes) if item.kind == "vectors" else sizes
            row[name] = random.standard_normal(shape, np.float32)
    lengths = row_lengths({name: item for name, item in inputs.items() if name in row}, row)
    for name, item in inputs.items():
        if item.kind == "edges" and item.of is not None:
            row[name] = np.ones((lengths[item.of],) * 2, np.bool_)
    return row
