"""Reads a prepared corpus in windows: blocks drawn from the whole corpus, whose rows form batches together.

Blocks are read by position, not mapped: a file that was cut short is an error, and pages that were read do not count as
memory of the process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from os import pread
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xformc.compiler.spec.sections import Objective
from xformc.errors import UserError
from xformc.format.tokens import SpecialTokens
from xformc.trainer.data.batches import Batch, Examples, make_batch
from xformc.trainer.data.columns import Sequences
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.redrawn_texts import KEPT, Redraw
from xformc.trainer.data.result_examples import corrupted, noise_of
from xformc.trainer.data.shards.blocks import ENTRY, Rows, id_type, joined, read_block
from xformc.trainer.data.shards.columns import VALID, kind_of, stored_columns, vocabulary_names
from xformc.trainer.data.shards.manifest import (
    AGAIN,
    BLOCKS,
    LOCK,
    MANIFEST,
    SHARD,
    Manifest,
    Part,
    damaged,
    read_manifest,
    shard_name,
)
from xformc.trainer.data.shards.redrawn_rows import RedrawnRows
from xformc.trainer.data.splits import CorpusFiles
from xformc.trainer.data.text_examples import of_pairs, of_texts
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary

WINDOW = 256
"""The blocks of a window: of sentence pairs, 131,072 rows."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus: its manifest, and where its blocks are."""

    folder: Path
    manifest: Manifest

    @property
    def path(self) -> Path:
        """The file that stands for the corpus in messages."""
        return self.folder / MANIFEST

    @property
    def sha256(self) -> str:
        """A hash of all that an epoch depends on."""
        return self.manifest.sha256

    @cached_property
    def index(self) -> npt.NDArray[Any]:
        """Where each block is. Raises: UserError if a block is not inside its file."""
        path = self.folder / BLOCKS
        index = np.fromfile(path, ENTRY)
        sizes = np.array([file.bytes for name, file in sorted(self.manifest.files.items()) if name.startswith(SHARD)])
        inside = index["shard"] < len(sizes)
        inside &= index["offset"] + index["size"] <= sizes[index["shard"] * inside]
        if len(index) != sum(part.blocks for part in self.manifest.parts) or not inside.all():
            raise damaged(path, "does not fit the other files")
        return index


def is_prepared(folder: Path) -> bool:
    """Whether a folder is a prepared corpus. Raises: UserError if it will be one."""
    if (folder / MANIFEST).is_file():
        return True
    if (folder / LOCK).exists():
        hint = "end it with xformc data --resume"
        raise UserError("its preparation has not ended", place=str(folder), hint=hint)
    return False


def prepared_files(folder: Path, schema: DataSchema, languages: str | None) -> CorpusFiles:
    """The files that stand for both splits. Raises: UserError if `languages` are given, or for another task."""
    if languages is not None:
        hint = "leave --languages out"
        raise UserError(f"--languages {languages} has no effect on prepared data", place=str(folder), hint=hint)
    return CorpusFiles((folder / MANIFEST,), tuple(folder / name for name in VALID[kind_of(schema, folder)]))


def read_prepared(folder: Path, schema: DataSchema) -> Prepared:
    """Open a prepared corpus. Raises: UserError as `read_manifest`, or if it was prepared for other inputs."""
    manifest, kind = read_manifest(folder), kind_of(schema)
    if (manifest.task, tuple(manifest.columns)) != (kind, schema.columns):
        raise UserError(
            f"is prepared for {manifest.task} of {', '.join(manifest.columns)};"
            f" this spec is {kind} of {', '.join(schema.columns)}",
            place=str(folder),
            hint=AGAIN,
        )
    return Prepared(folder, manifest)


def shard_examples(
    prepared: Prepared, schema: DataSchema, tokenizer: Tokenizer, redraw: Redraw = KEPT
) -> "ShardExamples":
    """The examples of a prepared corpus, whose texts are drawn anew as `redraw` says.

    Raises: UserError if its ids are those of other vocabularies, or an objective lacks tokens.
    """
    stored, names = prepared.manifest.columns, vocabulary_names(schema)
    for name, wanted in stored_columns(schema, tokenizer).items():
        if wanted.vocabulary != stored[name].vocabulary:
            raise UserError(
                f"the ids of '{name}' are those of another vocabulary than the run's",
                place=str(prepared.folder),
                hint="prepare it with the run's: xformc data --tokenizer RUN",
            )
        if [wanted.before, wanted.after] != [list(stored[name].before), list(stored[name].after)]:
            message = f"the texts of '{name}' are between other special tokens than those of the spec"
            raise UserError(message, place=str(prepared.folder), hint=AGAIN)
    vocabularies = {column: tokenizer.vocabularies[name] for column, name in names.items()}
    special = {column: schema.special[name] for column, name in names.items()}
    objective, make = schema.objective, partial(_examples, schema)
    if objective is not None:
        (known,) = vocabularies.values()
        noise_of(objective, known)
        make = partial(_corrupted, schema, objective, known)
    drawn = None if redraw == KEPT else RedrawnRows(redraw, stored, vocabularies)
    repeats = [part.repeat for part in prepared.manifest.parts]
    return ShardExamples(prepared, schema.longest, repeats, special, make, drawn)


RowDraws = Callable[[int], np.random.Generator]
"""What draws the noise of a row."""
Make = Callable[[Mapping[str, Sequences], RowDraws], Examples]
"""Makes examples of columns."""


def _examples(schema: DataSchema, columns: Mapping[str, Sequences], draws: RowDraws) -> Examples:
    if schema.task == "translation":
        return of_pairs(columns["source"], columns["target"], schema.longest, schema.special["target"].ignored)
    ((name, whole),) = columns.items()
    return of_texts(whole, schema.longest, name, schema.special[name].ignored)


def _corrupted(
    schema: DataSchema, objective: Objective, known: Vocabulary, columns: Mapping[str, Sequences], draws: RowDraws
) -> Examples:
    """Each epoch has noise of its own, so that `copies` do not count."""
    (texts,) = columns.values()
    bounds = enumerate(zip(texts.starts, texts.ends, strict=True))
    rows = ((texts.items[start:end].tolist(), draws(row)) for row, (start, end) in bounds)
    return corrupted(rows, schema, objective, known)


@dataclass(frozen=True)
class ShardExamples:
    """Examples in a prepared corpus. longest: maximum positions of a sequence. repeats: how often an epoch has the rows
    of each part. special: the special tokens of each column. make: makes examples of columns. redrawn: the rows as an
    epoch has them."""

    prepared: Prepared
    longest: int
    repeats: Sequence[float]
    special: Mapping[str, SpecialTokens]
    make: Make
    redrawn: RedrawnRows | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return self.prepared.manifest.rows

    def sample(self) -> Batch:
        """A batch of one example. Raises: UserError if none fits."""
        blocks = np.arange(len(self.prepared.index))[:, None]
        windows = (self._window(one, np.zeros(1, np.int64), 0, 0) for one in blocks)
        found = next((make_batch(one, np.arange(1)) for one in windows if len(one)), None)
        if found is None:
            raise self._too_long()
        return found

    def windows(self, seed: int, epoch: int, first: int = 0) -> Iterator[tuple[int, Examples]]:
        """Yield the windows of an epoch from the number `first` on, each with its number.

        An epoch's blocks are in an order that is drawn from (seed, epoch). Raises: UserError for a damaged block, or if
        no example of a whole epoch fits.
        """
        order = epoch_blocks(self.prepared.manifest.parts, self.repeats, seed, epoch)
        turns = _turns(order)
        fits = first > 0 or not len(order)
        for number in range(first, -(-len(order) // WINDOW)):
            window = slice(number * WINDOW, (number + 1) * WINDOW)
            ascending = np.argsort(order[window], kind="stable")
            examples = self._window(order[window][ascending], turns[window][ascending], seed, epoch, number)
            fits |= len(examples) > 0
            yield number, examples
        if not fits:
            raise self._too_long()

    def _too_long(self) -> UserError:
        return UserError(
            f"every example is longer than {self.longest} positions",
            place=str(self.prepared.folder),
            hint="raise train.max_length or train.batch_tokens, or split the data into shorter parts",
        )

    def weighted(self, weights: Mapping[str, float]) -> "ShardExamples":
        """The same with other repeats of the named corpora; a name is a folder as it was given, or its last part.

        Raises: UserError for another name, or if no corpus is left.
        """
        parts = self.prepared.manifest.parts
        chosen = {_named(name, parts, self.prepared): weight for name, weight in weights.items()}
        repeats = [chosen.get(index, repeat) for index, repeat in enumerate(self.repeats)]
        if not any(repeat and part.blocks for repeat, part in zip(repeats, parts, strict=True)):
            hint = "give one of the corpora a weight above 0"
            raise UserError(f"train.stages: {dict(weights)} leaves no corpus", place=str(self.prepared.path), hint=hint)
        return replace(self, repeats=repeats)

    def _numbers(self, blocks: Numbers, turns: Numbers) -> Numbers:
        """The numbers of the rows of these blocks: those in the corpus, and others at each further turn of a block."""
        sizes = self.prepared.index["rows"].astype(np.int64)
        edges: list[int] = [0, *map(int, np.cumsum(sizes))]
        pairs = zip(map(int, blocks), map(int, turns), strict=True)
        return np.concatenate([np.arange(edges[block], edges[block + 1]) + turn * edges[-1] for block, turn in pairs])

    def _read(self, blocks: Numbers) -> Rows:
        """The rows of these blocks, which are in ascending order."""
        columns = self.prepared.manifest.columns
        kind = id_type(max(column.size for column in columns.values()))
        found = list[Rows]()
        for shard, group in groupby(self.prepared.index[blocks], key=lambda entry: int(entry["shard"])):
            path = self.prepared.folder / shard_name(shard)
            with path.open("rb") as file:
                for entry in group:
                    content = pread(file.fileno(), int(entry["size"]), int(entry["offset"]))
                    rows = read_block(content, entry, len(columns), kind)
                    if rows is None:
                        raise damaged(path, f"the block at byte {entry['offset']:,} is not what was written")
                    found.append(rows)
        return joined(found)

    def _window(self, blocks: Numbers, turns: Numbers, seed: int, epoch: int, number: int = 0) -> Examples:
        """The examples of these blocks, which are in ascending order, in the window with this number.

        `turns` count how often the epoch had each block before.
        """
        rows, numbers = self._read(blocks), self._numbers(blocks, turns)
        _check_ids(rows, self.prepared)
        if self.redrawn is not None:
            rows = self.redrawn(rows, numbers, seed, epoch, number)
        ends = np.cumsum(rows.lengths).reshape(rows.lengths.shape)
        starts = ends - rows.lengths
        columns = {
            name: Sequences(rows.ids, starts[:, place], ends[:, place], self.special[name].fill)
            for place, name in enumerate(self.prepared.manifest.columns)
        }
        return self.make(columns, lambda row: np.random.default_rng([seed, epoch, int(numbers[row])]))


def _turns(order: Numbers) -> Numbers:
    """How often each number was there before."""
    ascending = np.argsort(order, kind="stable")
    ordered = order[ascending]
    turns = np.empty_like(order)
    turns[ascending] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return turns


def epoch_blocks(parts: Sequence[Part], repeats: Sequence[float], seed: int, epoch: int) -> Numbers:
    """The blocks of an epoch in random order: those of each corpus as often as it repeats."""
    random = np.random.default_rng([seed, epoch])
    chosen, first = list[Numbers](), 0
    for part, repeat in zip(parts, repeats, strict=True):
        whole, rest = divmod(repeat, 1)
        blocks = first + np.arange(part.blocks)
        chosen += [blocks] * int(whole)
        chosen.append(random.permutation(blocks)[: int(rest * part.blocks + random.random())])
        first += part.blocks
    return random.permutation(np.concatenate(chosen))


def _named(name: str, parts: Sequence[Part], prepared: Prepared) -> int:
    """The number of the corpus with this name. Raises: UserError unless there is exactly one."""
    found = [index for index, part in enumerate(parts) if part.name == name]
    found = found or [index for index, part in enumerate(parts) if Path(part.name).name == name]
    if len(found) != 1:
        names = ", ".join(part.name for part in parts)
        what = "several corpora are" if found else "no corpus is"
        hint = f"the corpora are {names}"
        raise UserError(f"train.stages: {what} called '{name}'", place=str(prepared.path), hint=hint)
    return found[0]


def _check_ids(rows: Rows, prepared: Prepared) -> None:
    """Raises: UserError for an id that is not in its vocabulary."""
    if not rows.lengths.all():
        raise UserError("has an empty row", place=str(prepared.folder), hint=AGAIN)
    starts = np.cumsum(rows.lengths).reshape(rows.lengths.shape) - rows.lengths
    largest = np.maximum.reduceat(rows.ids, starts.ravel()).reshape(rows.lengths.shape).max(0)
    for (name, column), found in zip(prepared.manifest.columns.items(), largest, strict=True):
        if found >= column.size:
            message = f"has the id {found} of '{name}', whose vocabulary has {column.size:,} tokens"
            raise UserError(message, place=str(prepared.folder), hint=AGAIN)
