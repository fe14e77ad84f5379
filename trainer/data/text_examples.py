"""Makes examples of text: each task's columns become the token ids of the model's inputs, and labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from xformc.compiler.results.kind import LABELS
from xformc.compiler.spec.sections import Tokenizer as TokenizerSection
from xformc.format.tokens import IGNORE, PAD
from xformc.trainer.data.batches import Examples, without_long
from xformc.trainer.data.columns import Sequences, Values, pack
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.foreign_vocabulary import is_foreign, tokenizer_in
from xformc.trainer.data.label_names import label_ids, require_one_each
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary, load_tokenizer, train_tokenizer

Affixes = tuple[Sequence[int], Sequence[int]]
"""The tokens before and after a text."""


def train_on(texts: Texts, schema: DataSchema, wanted: TokenizerSection) -> Tokenizer:
    """Train the tokenizer of a text's inputs. Raises: UserError as `train_tokenizer`."""
    columns = {name: texts.columns[name] for name in schema.texts}
    kind, shared, symbols = wanted.kind, wanted.shared, wanted.symbols
    return train_tokenizer(columns, _sizes(schema), kind=kind, shared=shared, symbols=symbols)


def load_for(schema: DataSchema, wanted: TokenizerSection, run: Path) -> Tokenizer:
    """Load the tokenizer of a run. Raises: UserError as `load_tokenizer` and `tokenizer_in`."""
    if is_foreign(run, schema):
        return tokenizer_in([run], schema)
    kind, shared = wanted.kind, wanted.shared
    return load_tokenizer(run, _sizes(schema), kind=kind, shared=shared, exact=not wanted.symbols)


def encode_texts(texts: Texts, schema: DataSchema, tokenizer: Tokenizer, labels: Sequence[str]) -> Examples:
    """Return the examples of one split, without those that are too long.

    Raises: UserError for unknown labels, or if the numbers of labels and words differ, with the line.
    """
    return _ENCODERS[schema.task](texts, schema, tokenizer, labels)


def affixes(vocabulary: Vocabulary, *, ends: bool = True, written: bool = False, alone: bool = False) -> Affixes:
    """The tokens before and after the texts of an input: what their vocabulary puts around them.

    A text without an end (`ends` is false) has no token after it. A `written` text has the begin token before them,
    which a decoder reads first; one that is written `alone`, by a language model, has that and the end token only.
    """
    special, (before, after) = vocabulary.special, vocabulary.around
    if alone:
        return special.begun, (special.last,)
    return (*special.begun, *before) if written else before, after if ends else ()


def of_pairs(source: Sequences, target: Sequences, longest: int, ignored: int = PAD) -> Examples:
    """Return examples of sentence pairs that have their special tokens, without those that are too long.

    `ignored` is the label of the positions after a text (see `SpecialTokens`).
    """
    given, labels = shifted(target, ignored)
    return without_long(Examples({"source": source, "target": given}, {LABELS: labels}, {LABELS: ignored}, longest))


def of_texts(whole: Sequences, longest: int, name: str = "text", ignored: int = PAD) -> Examples:
    """Return examples of texts that have their special tokens, for the input `name`; their labels are the next tokens.

    Longer texts are cut into parts of `longest`. `ignored` is as in `of_pairs`.
    """
    given, labels = (_cut(side, longest) for side in shifted(whole, ignored))
    return Examples({name: given}, {LABELS: labels}, {LABELS: ignored}, longest)


def packed(
    texts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    *,
    ends: bool = True,
    written: bool = False,
    alone: bool = False,
) -> Sequences:
    """Return the ids of texts between their `affixes`."""
    before, after = affixes(vocabulary, ends=ends, written=written, alone=alone)
    return replace(pack(texts, before=before, after=after), fill=vocabulary.special.fill)


def _translation(texts: Texts, schema: DataSchema, tokenizer: Tokenizer, labels: Sequence[str]) -> Examples:
    ids, known, special = _encode(texts, tokenizer), tokenizer.vocabularies, schema.special
    source, target = (
        packed(ids[name], known[name], ends=special[name].ends, written=name == "target")
        for name in ("source", "target")
    )
    return of_pairs(source, target, schema.longest, known["target"].special.ignored)


def _language_model(texts: Texts, schema: DataSchema, tokenizer: Tokenizer, labels: Sequence[str]) -> Examples:
    (name,) = schema.texts
    vocabulary = tokenizer.vocabularies[name]
    whole = packed(_encode(texts, tokenizer)[name], vocabulary, alone=True)
    return of_texts(whole, schema.longest, name, vocabulary.special.ignored)


def _classification(texts: Texts, schema: DataSchema, tokenizer: Tokenizer, labels: Sequence[str]) -> Examples:
    encode = _encode_words if any(item.of for item in schema.inputs.values()) else _encode
    encoded = encode(texts, tokenizer)
    _require_aligned(texts, schema, encoded)
    inputs = {
        name: packed(ids, tokenizer.vocabularies[name], ends=schema.special[name].ends) for name, ids in encoded.items()
    }
    ids = [row[0] for row in label_ids(texts, labels, each=False)]
    return without_long(Examples(inputs, {LABELS: Values(np.array(ids), whole=True)}, {LABELS: IGNORE}, schema.longest))


def _tagging(texts: Texts, schema: DataSchema, tokenizer: Tokenizer, labels: Sequence[str]) -> Examples:
    words = _encode_words(texts, tokenizer)
    _require_aligned(texts, schema, words)
    tags = label_ids(texts, labels, each=True)
    first = words[schema.positions or schema.texts[0]]
    require_one_each(texts, {"words": list(map(len, first)), "labels": list(map(len, tags))})
    fills = {name: vocabulary.special.fill for name, vocabulary in tokenizer.vocabularies.items()}
    inputs = {name: replace(pack(ids), fill=fills[name]) for name, ids in words.items()}
    labelled = replace(pack(tags), fill=IGNORE)
    return without_long(Examples(inputs, {LABELS: labelled}, {LABELS: IGNORE}, schema.longest))


_ENCODERS: Mapping[str, Callable[[Texts, DataSchema, Tokenizer, Sequence[str]], Examples]] = {
    "translation": _translation,
    "language_model": _language_model,
    "tagging": _tagging,
    "classification": _classification,
}


def _sizes(schema: DataSchema) -> dict[str, int]:
    return dict(schema.vocabularies)


def _encode(texts: Texts, tokenizer: Tokenizer) -> dict[str, list[list[int]]]:
    return {name: vocabulary.encode(texts.columns[name]) for name, vocabulary in tokenizer.vocabularies.items()}


def _require_aligned(texts: Texts, schema: DataSchema, words: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Check that inputs along another one have as many words. Raises: UserError."""
    for name, item in schema.inputs.items():
        if item.of is not None:
            counts = {f"words of {each}": list(map(len, words[each])) for each in (item.of, name)}
            require_one_each(texts, counts, f"write one word of {name} for each word of {item.of}")


def _encode_words(texts: Texts, tokenizer: Tokenizer) -> dict[str, list[list[int]]]:
    return {name: known.encode_words(texts.columns[name]) for name, known in tokenizer.vocabularies.items()}


def shifted(whole: Sequences, ignored: int = PAD) -> tuple[Sequences, Sequences]:
    """Return the sequences without their last item, and as labels those without their first, padded with `ignored`."""
    return replace(whole, ends=whole.ends - 1), replace(whole, starts=whole.starts + 1, fill=ignored)


def _cut(whole: Sequences, longest: int) -> Sequences:
    """Cut the sequences into parts of `longest` items; the last part of each has the rest."""
    pieces = -(-whole.lengths() // longest)
    rows = np.repeat(np.arange(len(whole)), pieces)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = whole.starts[rows] + (np.arange(len(rows)) - first) * longest
    return replace(whole, starts=starts, ends=np.minimum(starts + longest, whole.ends[rows]))
