"""Checks that an engine gives the same through libxformc as through the Python runtime: tokens, texts, score bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from xformc import __version__
from xformc.format.abilities import SCORES_TEXTS
from xformc.format.certificate import Certificate, Stage
from xformc.format.inputs import Input
from xformc.format.tasks import NAMED
from xformc.runtime.checks.workload import random_workload
from xformc.runtime.engine import Engine, load
from xformc.runtime.kinds.ctc import Transcript
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.rows import Row, pad, stack
from xformc.runtime.searching.translate import PROMPT, Hypothesis

RuntimeName = Literal["python", "cpp"]
"""The runtimes of engines: Python's, and the C++ library libxformc."""

COUNT = 40
"""The number of random examples."""

ODD_TEXTS = (
    "", " ", "\t\u3000\u2028", "\ufb01ne \u2460 \uff48", "e\u0301\u0301", "\u202ehello", "a\0b",
    "\u6f22\u5b57 \U0001f600", "one  two\r\nthree", "\ufeff\u200b.", "x" * 400,
    "\u05e9\u05dc\u05d5\u05dd 1,000.5% <unk> </s> \u2581",
)  # fmt: skip
"""Texts on which tokenizers and runtimes could differ."""

NEW_TOKENS = 16


def compare_runtimes(folder: Path, progress: Callable[[str], None] = lambda _: None) -> Certificate:
    """Run the same examples through both runtimes. The value of a stage is the number of results that differ.

    Raises: UserError if one of the runtimes cannot load the engine, or there is no libxformc.
    """
    progress("verify: loading")
    with load(folder) as engine:
        other = CppEngine(folder)
        try:
            stages = tuple(
                Stage("runtime", f"{one.what}: {len(one.found)} results of libxformc and Python", one.differing, 0)
                for one in _comparisons(engine, other, progress)
            )
        finally:
            other.close()
    versions = {"xformc": __version__, "onnxruntime": str(onnx_runtime().__version__)}
    return Certificate(stages, datetime.now(UTC).isoformat(timespec="seconds"), versions)


@dataclass(frozen=True)
class _Comparison:
    """The results of one way to run the engine: those of libxformc, and those expected, which are Python's."""

    what: str
    found: Sequence[Any]
    expected: Sequence[Any]

    @property
    def differing(self) -> int:
        pairs = zip(self.found, self.expected, strict=False)
        return abs(len(self.found) - len(self.expected)) + sum(one != two for one, two in pairs)


def _comparisons(engine: Engine, other: CppEngine, progress: Callable[[str], None]) -> list[_Comparison]:
    manifest, items = engine.manifest, random_workload(engine, {}, COUNT).items
    progress("verify: ids and arrays")
    compared: list[_Comparison] = []
    if manifest.task == "translation":
        items = [item["source"] for item in items]
        compared += [_searched(engine, other, items, options) for options in _searches(engine)]
    elif manifest.decoding != "forward" and manifest.given:
        arrays = _arrays(manifest.given, items)
        compared += [_transcribed(engine, other, "arrays", arrays, options) for options in _options(engine)]
    elif manifest.decoding == "forward":
        arrays = _arrays(manifest.inputs, items)
        compared.append(_Comparison("arrays", _plain(other.predict(arrays)), _plain(engine.predict(arrays))))
    progress("verify: texts")
    texts = manifest.inputs if manifest.task in NAMED else manifest.given
    if engine.tokenizer is not None and engine.tokenizer.vocabularies.keys() >= texts.keys():
        compared += _of_texts(engine, other, _texts(engine, items))
    return compared


def _searched(engine: Engine, other: CppEngine, items: Sequence[Any], options: Mapping[str, Any]) -> _Comparison:
    """Compare searches on ids. Python's result has missing hypotheses, with the score -inf."""
    source, expected = pad(items), engine.search(pad(items), **cast(Any, options))
    rows = [
        [(tuple(map(int, tokens[:length])), float(score)) for tokens, length, score in zip(*row, strict=True)]
        for row in zip(expected.tokens, expected.lengths, expected.scores, strict=True)
    ]
    found = [[(one.tokens, one.score) for one in row] for row in other.search(source, **options)]
    there = [[row[0], *(one for one in row[1:] if one[1] != -np.inf)] for row in rows]
    return _Comparison(f"searches with beam {options['beam_size']}", found, there)


def _translated(engine: Engine, other: CppEngine, texts: Sequence[str], options: Mapping[str, Any]) -> _Comparison:
    found, expected = other.translate(texts, **options), engine.translate(texts, **cast(Any, options))
    return _Comparison(f"texts with beam {options['beam_size']}", found, expected)


def _transcribed(engine: Engine, other: CppEngine, what: str, examples: Any, options: Mapping[str, Any]) -> _Comparison:
    found, expected = other.transcribe(examples, **options), engine.transcribe(examples, **cast(Any, options))
    how = f"beam {options['beam_size']}" if "beam_size" in options else f"seed {options['seed']}"
    return _Comparison(f"{what} with {how}", _plain_texts(found), _plain_texts(expected))


def _of_texts(engine: Engine, other: CppEngine, texts: Sequence[str]) -> list[_Comparison]:
    decoding = engine.manifest.decoding
    if engine.manifest.task == "translation":
        return [_translated(engine, other, texts, {**options, **_scored(engine)}) for options in _searches(engine)]
    if engine.manifest.task == "language_model":
        options = {"max_new_tokens": NEW_TOKENS, "seed": 1, **_scored(engine)}
        prompts = _Comparison("prompts", other.generate(texts, **options), engine.generate(texts, **cast(Any, options)))
        scores = [_Comparison("scores", other.score(texts), engine.score(texts))] if _scored(engine) else []
        return [prompts, *scores]
    examples = [(text,) * len(engine.manifest.given) for text in texts]
    if decoding != "forward":
        return [_transcribed(engine, other, "texts", examples, options) for options in _options(engine)]
    return [_Comparison("texts", _plain(other.predict(examples)), _plain(engine.predict(examples)))]


def _scored(engine: Engine) -> dict[str, Any]:
    """Return the option of scores of tokens, if the engine has them."""
    return {"token_scores": True} if engine.manifest.can(SCORES_TEXTS) else {}


def _options(engine: Engine) -> list[dict[str, Any]]:
    """Return options of the engine's searches, or of its sampling."""
    samples = engine.manifest.decoding == "sample"
    return [{"max_new_tokens": NEW_TOKENS, "seed": 1}] if samples else _searches(engine)


def _searches(engine: Engine) -> list[dict[str, Any]]:
    """Return options of searches: the engine's own beam with all hypotheses, and greedy search."""
    beam = engine.manifest.search.beam_size
    return [{"beam_size": size, "n_best": size, "max_length_factor": 0.5} for size in dict.fromkeys((beam, 1))]


def _texts(engine: Engine, items: Sequence[Any]) -> list[str]:
    """Return the texts of random ids of the first input, and the odd ones, without those that are too long.

    A language model without a begin token goes on from no empty text.
    """
    assert engine.tokenizer is not None
    tokenizer, inputs = engine.tokenizer, engine.manifest.given or engine.manifest.inputs
    name = next(iter(inputs))
    rows: list[Any] = []
    for item in items:
        row: Any = item
        rows.append(row if not isinstance(item, Mapping) else row[PROMPT] if PROMPT in row else row[name])
    texts = [*(tokenizer.decode(name, [int(one) for one in row]) for row in rows), *ODD_TEXTS]
    longest = min(item.longest or len(max(texts, key=len)) + 2 for item in inputs.values())
    begins = engine.manifest.task != "language_model" or inputs[name].special.begin is not None
    return [
        text
        for text in texts
        if (begins or tokenizer.encode_open(name, text))
        and all(len(tokenizer.encode(one, text)) < longest for one in inputs)
    ]


def _arrays(inputs: Mapping[str, Input], rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
    """Return rows as the arrays that `predict` takes."""
    arrays = stack(inputs, rows)
    for name, item in inputs.items():
        if item.kind == "vectors" and item.is_sequence:
            arrays[f"{name}_lengths"] = arrays.pop(f"{name}_mask").sum(1).astype(np.int64)
    return arrays


def _plain(predictions: Sequence[Prediction]) -> list[Any]:
    """Return predictions as values that compare bit by bit."""
    return [(_bits(one), {name: _bits(value) for name, value in one.results.items()}) for one in predictions]


def _plain_texts(results: Sequence[Sequence[Hypothesis]]) -> list[Any]:
    """Return written texts, with their further results, as values that compare bit by bit."""
    return [
        [(one.text, one.score, one.tokens, {name: _bits(value) for name, value in one.results.items()}) for one in row]
        for row in results
    ]


def _bits(value: Any) -> Any:
    """Return labels, or an array, as a value that compares bit by bit."""
    if isinstance(value, Prediction):
        return value.labels, _bits(value.probabilities)
    if isinstance(value, Transcript):
        return value.hypotheses
    array = np.asarray(value)
    return array.shape, array.tobytes()
