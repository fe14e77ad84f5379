"""Makes examples for specs that declare their results, from texts and arrays."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from xformc.compiler.results.kind import KINDS, LABELS
from xformc.compiler.spec.sections import Objective
from xformc.errors import UserError
from xformc.format.tokens import BEGIN, END, IGNORE, PAD
from xformc.trainer.data.array_examples import ArrayReader, require_rows
from xformc.trainer.data.batches import Examples, without_long
from xformc.trainer.data.columns import Column, Pairs, Sequences, Values, pack
from xformc.trainer.data.data_schema import SIMILAR, DataSchema
from xformc.trainer.data.file_columns import file_column
from xformc.trainer.data.npz import Arrays
from xformc.trainer.data.objectives import ONCE, Draws, Example, Ids, Noise, Random, corrupt, symbols
from xformc.trainer.data.targets.target import TARGETS, Cells, Names, Target
from xformc.trainer.data.text_examples import packed, shifted
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary

Labels = Mapping[str, Names]
"""The names of labels by id, for each result that is labels."""


def text_columns(split: Texts | Arrays, schema: DataSchema) -> dict[str, list[str]]:
    """Return the texts of each vocabulary that the split has as text, those of both rows of pairs together.

    All inputs share the plain text of an objective; it belongs to the first.
    """
    if schema.objective is not None:
        first, *others = schema.texts
        return {first: _cells(split, "text").texts or [], **{name: [] for name in others}}
    rows = {name: _texts_of(split, name) for name in schema.vocabularies}
    return {name: [text for one in cells for text in one.texts or ()] for name, cells in rows.items() if cells}


def has_texts(split: Texts | Arrays, schema: DataSchema) -> bool:
    """Whether the split has a vocabulary's texts."""
    return schema.objective is not None or any(_texts_of(split, name) for name in schema.vocabularies)


def _texts_of(split: Texts | Arrays, name: str) -> list[Cells]:
    """The columns of an input that are text: its own, and that of the second rows of pairs."""
    cells = (_cells(split, column) for column in (name, f"{name}{SIMILAR}") if _has(split, column))
    return [one for one in cells if one.is_text and len(one.content)]


def result_texts(split: Texts | Arrays, schema: DataSchema, name: str) -> list[str] | None:
    """Return the texts of a result as the data has them; None for ids, and for what an objective makes."""
    return None if schema.objective is not None else _cells(split, name).texts


def target_labels(split: Texts | Arrays, schema: DataSchema) -> dict[str, Names]:
    """Return the names of the labels of each result that has them. Raises: UserError for a wrong number of them."""
    if schema.objective is not None:
        return {}
    found: dict[str, Names] = {}
    for target in schema.targets:
        names = None if TARGETS[target.kind].paired else TARGETS[target.kind].labels(target, _cells(split, target.name))
        if names is not None:
            found[target.name] = names
    return found


def encode_results(
    split: Texts | Arrays, schema: DataSchema, tokenizer: Tokenizer | None, labels: Labels, draws: Draws = ONCE
) -> Examples:
    """Return the examples of one split, without those that are too long; an objective has its noise by `draws`, which
    depends on the seed, the copy and the place of a text alone.

    Raises: UserError for a column that is missing or does not fit the spec, with its line or row if there is one.
    """
    if schema.objective is not None:
        assert tokenizer is not None
        known = tokenizer.vocabularies[schema.texts[0]]
        encoded = known.encode(_cells(split, "text").texts or [])
        drawn = (
            (ids, np.random.default_rng([draws.seed, copy, place]))
            for copy in range(draws.copies)
            for place, ids in enumerate(encoded)
        )
        return corrupted(drawn, schema, schema.objective, known)
    _require_one_kind(schema, str(split.path))
    if isinstance(split, Arrays):
        require_rows(split)
    encoder = _Encoder(split, schema, tokenizer)
    inputs: dict[str, Column] = {}
    targets: dict[str, Column] = {}
    ignore: dict[str, int] = {}
    for name, item in sorted(schema.inputs.items(), key=lambda pair: pair[1].of is not None):
        if name == schema.written:
            key, ignored = f"{name}_{LABELS}" if schema.targets else LABELS, item.special.ignored
            inputs[name], targets[key] = shifted(encoder.written(name), ignored)
            ignore[key] = ignored
        elif item.kind == "tokens" and (texts := encoder.texts(name)) is not None:
            inputs[name] = texts
        else:
            inputs |= encoder.array(name, inputs)
    for name, item in schema.inputs.items():
        if item.of is not None and isinstance(inputs[name], Sequences):
            encoder.require_aligned(name, inputs[name], item.of, inputs[item.of])
    for target in schema.targets:
        targets[target.input] = encoder.target(target, labels.get(target.name, ()), inputs)
        ignore[target.input] = TARGETS[target.kind].ignore
    ordered = {name: inputs[name] for name in schema.inputs}
    if schema.paired:
        ordered = encoder.pairs(ordered)
    return without_long(Examples(ordered, targets, ignore, schema.longest))


def corrupted(
    texts: Iterable[tuple[Ids, Random]], schema: DataSchema, objective: Objective, vocabulary: Vocabulary
) -> Examples:
    """The examples that an objective makes of texts, each with what draws its noise.

    Longer texts are cut into parts.
    """
    noise, most, made = noise_of(objective, vocabulary), schema.longest - 2, list[Example | None]()
    for ids, random in texts:
        made += [corrupt(objective, ids[at : at + most], noise, random) for at in range(0, len(ids), most)]
    found = [example for example in made if example is not None]
    if objective.masked is not None:
        (name,), (target,) = schema.texts, schema.targets
        labels = replace(pack([one.wanted for one in found]), fill=IGNORE)
        inputs = {name: pack([one.given for one in found])}
        return without_long(Examples(inputs, {target.input: labels}, {target.input: IGNORE}, schema.longest))
    (source,) = (name for name in schema.texts if name != schema.written)
    whole = pack([one.wanted for one in found], before=[BEGIN], after=[END])
    given, labels = shifted(whole)
    columns = {source: pack([one.given for one in found], after=[END]), str(schema.written): given}
    ordered = {name: columns[name] for name in schema.inputs}
    return without_long(Examples(ordered, {LABELS: labels}, {LABELS: PAD}, schema.longest))


def piece_labels(schema: DataSchema, tokenizer: Tokenizer) -> dict[str, Names]:
    """Return the labels of masked tokens: the pieces of the vocabulary."""
    (name,), (target,) = schema.texts, schema.targets
    processor = tokenizer.vocabularies[name].processor()
    pieces = [str(processor.id_to_piece(index)) for index in range(processor.get_piece_size())]
    pieces += [f"<unused {index}>" for index in range(len(pieces), target.sizes[-1])]
    return {target.name: tuple(piece if piece.isprintable() else f"<{i}>" for i, piece in enumerate(pieces))}


def noise_of(objective: Objective, vocabulary: Vocabulary) -> Noise:
    """The ids that an objective writes. Raises: UserError if the vocabulary lacks one of its symbols."""
    processor, wanted = vocabulary.processor(), symbols(objective)
    ids = [processor.piece_to_id(symbol) for symbol in wanted]
    if any(one == processor.unk_id() for one in ids):
        raise UserError(f"the tokenizer lacks {wanted[0]}, which this objective needs", hint="train one with this spec")
    return Noise(ids[0] if ids else PAD, ids, range(END + 1 + len(ids), len(vocabulary)))


class _Encoder:
    """Encodes the columns of a split."""

    def __init__(self, split: Texts | Arrays, schema: DataSchema, tokenizer: Tokenizer | None) -> None:
        self.split, self.schema, self.tokenizer = split, schema, tokenizer

    def texts(self, name: str) -> Sequences | None:
        """The ids of an input of texts, each with the end token, or of their words; None for arrays of ids."""
        base = name.removesuffix(SIMILAR)
        texts = _cells(self.split, name).texts
        if texts is None:
            return None
        assert self.tokenizer is not None
        vocabulary = self.tokenizer.vocabularies[base]
        if self.schema.words:
            return replace(pack(vocabulary.encode_words(texts)), fill=vocabulary.special.fill)
        if any(item.of for item in self.schema.inputs.values()):
            return packed(vocabulary.encode_words(texts), vocabulary)
        return packed(vocabulary.encode(texts), vocabulary, ends=self.schema.special[base].ends)

    def require_aligned(self, name: str, column: Column, of: str, along: Column) -> None:
        """Check that an input has as many positions as the one along which it lies. Raises: UserError."""
        wrong = np.flatnonzero(column.lengths() != along.lengths())
        if wrong.size:
            row, texts = int(wrong[0]), isinstance(self.split, Texts)
            found = f"{column.lengths()[row]} positions of {name} and {along.lengths()[row]} of {of}"
            place = f"{self.split.path}:{self.split.lines[row]}" if isinstance(self.split, Texts) else f"row {row}"
            raise UserError(found, place=place, hint=f"'{name}' has one {'word' if texts else 'id'} for each of '{of}'")

    def written(self, name: str) -> Sequences:
        """The ids of the written text between the begin and the end token."""
        cells = _cells(self.split, name)
        if cells.texts is not None:
            assert self.tokenizer is not None
            vocabulary = self.tokenizer.vocabularies[name]
            return packed(vocabulary.encode(cells.texts), vocabulary, written=True)
        rows = self.array(name)[name]
        assert isinstance(rows, Sequences)
        ids = [rows.items[start:end].tolist() for start, end in zip(rows.starts, rows.ends, strict=True)]
        return pack(ids, before=[BEGIN])

    def array(self, name: str, known: Mapping[str, Column] | None = None) -> dict[str, Column]:
        """The column of an input given as arrays; `known` are those along which it may lie.

        Raises: UserError for what does not fit.
        """
        if isinstance(self.split, Texts) and name in self.split.arrays:
            return {name: file_column(self.split, name, self.schema.inputs[name.removesuffix(SIMILAR)])}
        if isinstance(self.split, Texts):
            raise UserError(f"'{name}' is not text", place=str(self.split.path), hint="the data must be an .npz file")
        reader = ArrayReader(self.split.arrays, self.schema, {**(known or {})})
        reader.read(name.removesuffix(SIMILAR), name)
        if reader.problems:
            raise UserError("\n  ".join(reader.problems), place=str(self.split.path))
        return {name: reader.columns[name]}

    def target(self, target: Target, labels: Names, inputs: Mapping[str, Column]) -> Column:
        """The column of a target."""
        kind = TARGETS[target.kind]
        cells = _cells(self.split, next(iter(self.schema.inputs)) if kind.paired else target.name)
        lengths = np.zeros(len(cells.content), np.int64)
        if target.positions is not None:
            lengths = inputs[target.positions].lengths()
        if cells.texts is not None and KINDS[target.kind].tokenized:
            assert self.tokenizer is not None
            return pack(self.tokenizer.vocabularies[target.name].encode(cells.texts))
        return kind.column(target, cells, labels, lengths)

    def pairs(self, inputs: Mapping[str, Column]) -> dict[str, Column]:
        """Each input together with its second rows."""
        found: dict[str, Column] = {}
        for name, first in inputs.items():
            other = f"{name}{SIMILAR}"
            texts = self.texts(other) if name in self.schema.texts else None
            second = self.array(other)[other] if texts is None else texts
            if isinstance(first, Sequences) and isinstance(second, Sequences):
                found[name] = Pairs(_joined(first, second))
            elif isinstance(first, Values) and isinstance(second, Values):
                found[name] = Pairs(Values(np.concatenate([first.array, second.array])))
            else:
                raise UserError(f"pairs of '{name}' must be tokens, vectors or values", place=str(self.split.path))
        return found


def _joined(first: Sequences, second: Sequences) -> Sequences:
    offset = len(first.items)
    return Sequences(
        np.concatenate([first.items, second.items]),
        np.concatenate([first.starts, second.starts + offset]),
        np.concatenate([first.ends, second.ends + offset]),
        first.fill,
        first.masked,
    )


def _has(split: Texts | Arrays, name: str) -> bool:
    return name in (split.columns if isinstance(split, Texts) else split.arrays)


def _cells(split: Texts | Arrays, name: str) -> Cells:
    if not _has(split, name):
        there = ", ".join(split.columns if isinstance(split, Texts) else sorted(split.arrays))
        raise UserError(f"'{name}' is missing; there are {there}", place=str(split.path))
    if isinstance(split, Texts):
        return Cells(split.columns[name], str(split.path), split.lines)
    return Cells(split.arrays[name], str(split.path))


def _require_one_kind(schema: DataSchema, place: str) -> None:
    paired = [item.name for item in schema.targets if TARGETS[item.kind].paired]
    single = [item.name for item in schema.targets if item.name not in paired]
    single += [] if schema.written is None else [schema.written]
    if paired and single:
        message = f"'{paired[0]}' is trained on pairs of examples, and '{single[0]}' on single ones"
        raise UserError(message, place=place, hint="train one spec after the other: xformc train SPEC --start RUN")
