"""Reads calibration examples from files like a task's validation data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.build import Labels
from xformc.compiler.quantize.calibration import EXAMPLES, Example
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.trainer.data.batches import Examples
from xformc.trainer.data.data_schema import DataSchema, data_schema
from xformc.trainer.data.dataset import Split, encode_split, make_tokenizer, name_labels, read_split, reads_text
from xformc.trainer.data.label_names import COLUMN
from xformc.trainer.data.splits import TABLES, suffix_of
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.data.vocabulary import Tokenizer


def calibration_examples(
    files: Sequence[Path], spec: Spec, tokenizers: Mapping[str, Path] | None, labels: Labels | None
) -> list[Example]:
    """Return at most EXAMPLES evenly spaced examples of these files, as inputs of the training graph.

    The files are those of one split: a source and its target, a text, a .tsv or an .npz. `tokenizers`, by input, and
    `labels`, by id, are those of a run. Both are None for randomly initialized weights; then the tokens are the words
    of the files, and the labels are those in the files.

    Raises: UserError for files that do not fit the task.
    """
    schema = data_schema(spec)
    _require_files(files, schema)
    split = read_split(tuple(files), schema)
    tokenizer = _tokenizer(split, schema, spec, tokenizers) if reads_text(split, schema) else None
    examples = encode_split(split, schema, tokenizer, _named(labels) or name_labels(split, schema))
    chosen = np.linspace(0, len(examples) - 1, min(len(examples), EXAMPLES)).round().astype(np.int64)
    return [_alone(examples, row) for row in chosen]


def _require_files(files: Sequence[Path], schema: DataSchema) -> None:
    for path in files:
        found = suffix_of(path)
        if found not in schema.suffixes if schema.labelled else found == "npz":
            kinds = f".{' or .'.join(schema.suffixes)}" if schema.labelled else "text, not arrays"
            raise UserError(f"{schema.task} with these inputs is calibrated with {kinds}", place=str(path))
    count = 2 if schema.task == "translation" and suffix_of(files[0]) not in ("tsv", *TABLES) else 1
    if len(files) != count:
        wanted = "a source and its target" if count == 2 else "one file"
        raise UserError(
            f"{schema.task} is calibrated with {wanted}, not with {len(files)}",
            place="--calibrate",
            hint="for example --calibrate valid.en --calibrate valid.de, or --calibrate valid.txt",
        )


def _named(labels: Labels | None) -> dict[str, tuple[str, ...]]:
    named = labels if isinstance(labels, Mapping) else {} if labels is None else {COLUMN: labels}
    return {name: tuple(names) for name, names in named.items()}


def _tokenizer(texts: Split, schema: DataSchema, spec: Spec, files: Mapping[str, Path] | None) -> Tokenizer | None:
    wanted = spec.train.tokenizer
    if files is None:
        return make_tokenizer(texts, schema, wanted.model_copy(update={"kind": "word"}))
    if not files:
        raise UserError(
            "these weights were trained on arrays, without a tokenizer", place=str(texts.path), hint=_ARRAYS
        )
    return load_for(schema, wanted, next(iter(files.values())).parent)


_ARRAYS = "calibrate with an .npz file like the training data"


def _alone(examples: Examples, row: np.int64) -> Example:
    """Return the inputs of one example as a batch of size 1 without padding."""
    example: dict[str, NDArray[Any]] = {}
    for name, column in examples.inputs.items():
        tensors = column.tensors(name, np.array([row]), int(column.lengths()[row]))
        example |= {key: tensor.numpy() for key, tensor in tensors.items()}
    return example
