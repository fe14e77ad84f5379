"""Computes the results of examples in one forward pass."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest
from xformc.format.results import Result
from xformc.format.tasks import NAMED
from xformc.runtime.kinds.kind import ResultKind, kind_of
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.media.reader import read_file
from xformc.runtime.results import Expected
from xformc.runtime.rows import Row, row_lengths, stack
from xformc.runtime.session import Session
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.text.texts import encode_line, whole_limit
from xformc.runtime.text.tokenizer import Tokenizer

Example = str | Path | Sequence[str] | Mapping[str, str]
"""A text or the path of a file, or one for each input, in order or by name."""

MAX_BATCH_POSITIONS = 2048
"""Default maximum positions of a batch."""

FEWEST_POSITIONS = 16
"""Shorter examples count as this many positions, which bounds the rows of a batch and their memory."""


def encode_example(
    line: int,
    example: Example,
    *,
    inputs: Mapping[str, Input],
    words: bool,
    tokenizer: Tokenizer | None,
    truncate: bool,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
) -> Row:
    """Return an example as a row: one text, or one for each input, in order or by name. With `words`, each has one id.

    The text of an input that is not tokens is the path of its file.

    Raises: UserError if there is not one text for each input, and as `encode_line` and `read_file`.
    """
    names = list(inputs)
    texts = _by_input(line, example, names)
    if len(texts) != len(names):
        raise UserError(
            f"needs a text for each of {', '.join(names)}, found {len(texts)}",
            place=f"line {line}",
            hint="put one text for each input on a line, separated by tabs",
        )
    aligned = any(item.of for item in inputs.values())
    tails = {name: 0 if words else len(item.special.after) for name, item in inputs.items()}
    row: dict[str, NDArray[Any]] = {}
    for name, text in zip(names, texts, strict=True):
        if inputs[name].kind != "tokens":
            row[name] = _read(line, text, name, inputs[name])
            continue
        assert tokenizer is not None
        encode = tokenizer.encode_words if words else tokenizer.encode
        if aligned and not words:
            encode = partial(_words_and_end, tokenizer)
        limit = whole_limit(inputs[name].longest, max_batch_tokens)
        function = partial(encode, name)
        ids = encode_line(line, text, encode=function, limit=limit, truncate=truncate, tail=tails[name])
        row[name] = np.array(ids, np.int64)
    for name, item in inputs.items():
        if item.of is not None and len(row[name]) != len(row[item.of]):
            found = (
                f"{len(row[name]) - tails[name]} words of {name} for {len(row[item.of]) - tails[item.of]} of {item.of}"
            )
            raise UserError(
                f"found {found}", place=f"line {line}", hint=f"write one word of {name} for each word of {item.of}"
            )
    return row


def _by_input(line: int, given: object, names: Sequence[str]) -> list[Any]:
    """Return the texts of an example in the order of the inputs. Raises: UserError if it has no order."""
    example: Any = given
    if isinstance(example, str | Path):
        return [example]
    if not isinstance(example, Mapping):
        if isinstance(example, AbstractSet) or not isinstance(example, Iterable):
            message = f"an example must be a text or several, found {type(given).__name__}"
            raise UserError(message, place=f"line {line}", hint=f"give a text for each of {', '.join(names)}, in order")
        return list(cast(Iterable[Any], example))
    texts = cast(Mapping[str, Any], example)
    if {*texts} != {*names}:
        found = ", ".join(str(name)[:40] for name in texts)
        raise UserError(f"needs a text for each of {', '.join(names)}, found {found}", place=f"line {line}")
    return [texts[name] for name in names]


def _read(line: int, path: Any, name: str, item: Input) -> NDArray[Any]:
    if not isinstance(path, str | Path):
        hint = f"give arrays by name: {{'{name}': array, ...}}"
        raise UserError(
            f"'{name}' must be the path of a file, found {type(path).__name__}", place=f"line {line}", hint=hint
        )
    return read_file(Path(path), name, item)


def _words_and_end(tokenizer: Tokenizer, name: str, text: str) -> list[int]:
    return [*tokenizer.encode_words(name, text), *tokenizer.after(name)]


def positions_needed(row: Row, *, inputs: Mapping[str, Input]) -> int:
    """Return the positions of the row's longest input, at least FEWEST_POSITIONS."""
    return max((FEWEST_POSITIONS, *row_lengths(inputs, row).values()))


def predict_rows(
    session: Session, rows: Sequence[Row], *, manifest: Manifest, tokenizer: Tokenizer | None = None
) -> list[Prediction]:
    """Predict the rows as one batch, and return the results in order; a row without positions has none."""
    nothing = nothing_of(manifest.results, tokenizer)
    lengths = [row_lengths(manifest.inputs, row) for row in rows]
    found = [dict(nothing) for _ in rows]
    filled = [index for index, length in enumerate(lengths) if all(length.values())]
    if filled:
        feeds = stack(manifest.inputs, [rows[index] for index in filled])
        names = [name for result in manifest.results.values() for name in result.outputs]
        outputs = dict(zip(names, session.run(feeds, expected_outputs(manifest.results, feeds)), strict=True))
        for place, index in enumerate(filled):
            found[index] = values_of(manifest.results, outputs, place, lengths[index], tokenizer)
    return [_prediction(manifest, one) for one in found]


def nothing_of(results: Mapping[str, Result], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the values of the results, by name, for a row without positions."""
    return {
        name: _spelled(name, kind_of(result), kind_of(result).nothing(result), tokenizer)
        for name, result in results.items()
    }


def values_of(
    results: Mapping[str, Result],
    outputs: Mapping[str, NDArray[Any]],
    row: int,
    lengths: Mapping[str, int],
    tokenizer: Tokenizer | None,
) -> dict[str, Any]:
    """Return the values of the results, by name, for a row of a batch, from the model's outputs by name.

    `lengths` are the row's positions; with a tokenizer, values that are tokens have their texts.
    """
    return {
        name: _spelled(name, kind, kind.value(result, _of_row(result, outputs, row, lengths)), tokenizer)
        for name, result in results.items()
        for kind in [kind_of(result)]
    }


def _spelled(name: str, kind: ResultKind, value: Any, tokenizer: Tokenizer | None) -> Any:
    if tokenizer is None or name not in tokenizer.vocabularies:
        return value
    return kind.spelled(value, partial(tokenizer.decode, name))


def _prediction(manifest: Manifest, results: Mapping[str, Any]) -> Prediction:
    labelled = next((one for one in results.values() if isinstance(one, Prediction)), _UNLABELLED)
    return labelled if manifest.task in NAMED else replace(labelled, results=results)


_UNLABELLED = Prediction((), np.zeros((0, 0), np.float32))


def _of_row(
    result: Result, outputs: Mapping[str, NDArray[Any]], row: int, lengths: Mapping[str, int]
) -> list[NDArray[Any]]:
    """The outputs of a result for a row of a batch, without padding."""
    rows = [np.asarray(outputs[name][row]) for name in result.outputs]
    return rows if result.positions is None else [array[: lengths[result.positions]] for array in rows]


def expected_outputs(results: Mapping[str, Result], feeds: Mapping[str, NDArray[Any]]) -> tuple[Expected, ...]:
    """Return what the outputs of a batch must be; its inputs are `feeds`."""
    examples = len(next(iter(feeds.values())))
    return tuple(
        one
        for result in results.values()
        for one in kind_of(result).expected(
            result, examples, None if result.positions is None else feeds[result.positions].shape[1]
        )
    )
