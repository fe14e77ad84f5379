"""Prepares corpora: texts are filtered, encoded once on all cores, and written into files that training reads."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random

from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.files import atomic_write, writing
from xformc.trainer.data.added_symbols import with_symbols
from xformc.trainer.data.data_schema import DataSchema, data_schema
from xformc.trainer.data.foreign_vocabulary import is_foreign
from xformc.trainer.data.objectives import symbols
from xformc.trainer.data.own_vocabulary import own_tokenizer
from xformc.trainer.data.result_examples import noise_of
from xformc.trainer.data.shards.chunks import after, read_chunks
from xformc.trainer.data.shards.columns import VALID, kind_of, stored_columns, vocabulary_names
from xformc.trainer.data.shards.encoding import Filters, Job, check_languages, encode_chunks
from xformc.trainer.data.shards.manifest import (
    BLOCKS,
    LOCK,
    MANIFEST,
    PROGRESS,
    Manifest,
    Part,
    hash_file,
    read_manifest,
    shard_name,
    write_manifest,
)
from xformc.trainer.data.shards.seen import Seen
from xformc.trainer.data.shards.writer import Progress, Writer, begun, job_hash, recorded
from xformc.trainer.data.splits import Files
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.data.text_files import Row, read_rows, read_texts
from xformc.trainer.data.vocabulary import SUFFIXES, Tokenizer, save_tokenizer, tokenizer_files, train_tokenizer
from xformc.trainer.start import tokenizer_of

SAMPLE = 1_000_000
"""The rows that a tokenizer is trained on, at most; drawn at random from a larger corpus."""

RECORD_SECONDS = 1.0


@dataclass(frozen=True)
class Corpus:
    """A corpus to prepare: its name and files, how often an epoch has each of its rows, and a tag, which stands before
    the first text of each row, and a space."""

    name: str
    files: Files
    weight: float = 1.0
    tag: str = ""


@dataclass(frozen=True)
class Preparation:
    """What is prepared, and how. valid: the files of the validation data. tokenizer: a run whose tokenizers are used,
    or the file of a vocabulary.

    temperature: above 1, smaller corpora are repeated: the share of a corpus of n rows is that of n^(1/T), and an epoch
    has the largest one once. max_ratio, copies, languages: as in `Filters`. duplicates: rows that were there
    before are dropped.
    """

    corpora: Sequence[Corpus]
    valid: Files
    tokenizer: Path | None = None
    temperature: float = 1.0
    max_ratio: float | None = None
    copies: bool = False
    languages: tuple[str, ...] | None = None
    duplicates: bool = False
    workers: int = 1


@dataclass(frozen=True)
class Note:
    """How far a preparation is: the bytes of text that were read, and the rows and tokens that were written."""

    size: int
    rows: int
    tokens: int


Report = Callable[[Note], None]


def prepare(
    spec: Spec, wanted: Preparation, out: Path, *, resume: bool = False, report: Report = lambda note: None
) -> Manifest:
    """Prepare corpora for a spec in the folder `out`; `report` is told how far it is.

    The result does not depend on the number of workers.

    Raises: UserError for a task whose data is not prepared, for bad input, and if `out` exists and is not resumed. What
    is written then stays there, for `resume`, if it is more than a preparation writes first.
    """
    schema = data_schema(spec)
    kind = kind_of(schema)
    for option, given in (("--drop-copies", wanted.copies), ("--max-ratio", wanted.max_ratio is not None)):
        if given and len(schema.columns) == 1:
            raise UserError(f"{option} compares the sides of pairs, and {kind} has one", hint="leave it out")
    if wanted.languages is not None:
        check_languages(wanted.languages, schema.columns)
    if resume and (out / MANIFEST).exists():
        return _finished(out, _request(spec, schema, wanted))
    again = (*VALID[kind], BLOCKS, shard_name(0))
    room = "free some space, then continue with --resume"
    with writing(out, hint=room), begun(out, again, resume=resume):
        return _prepare(spec, schema, wanted, out, report)


def _request(spec: Spec, schema: DataSchema, wanted: Preparation) -> str:
    """A hash of what is asked for: the settings, and the names and sizes of the files."""

    def named(paths: Sequence[Path | None]) -> list[tuple[str, int]]:
        return [(path.name, path.stat().st_size if path.is_file() else 0) for path in paths if path is not None]

    corpora = [replace(corpus, files=()) for corpus in wanted.corpora]
    settings = replace(wanted, corpora=corpora, valid=(), tokenizer=None, workers=1)
    files = [named(paths) for paths in (*(corpus.files for corpus in wanted.corpora), wanted.valid, [wanted.tokenizer])]
    return hashlib.sha256(repr((schema, spec.train.tokenizer, settings, files)).encode()).hexdigest()


def _finished(out: Path, request: str) -> Manifest:
    """The manifest of a finished preparation. Raises: UserError if something else is asked for."""
    manifest = read_manifest(out)
    if manifest.request not in ("", request):
        hint = "give the same ones, or another folder with -o"
        raise UserError("was prepared with other settings or from other files", place=str(out), hint=hint)
    return manifest


def _prepare(spec: Spec, schema: DataSchema, wanted: Preparation, out: Path, report: Report) -> Manifest:
    _write_validation(schema, wanted.valid, out)
    tokenizer = _tokenizer(spec, schema, wanted, out)
    job = _job(schema, wanted, tokenizer, out)
    columns = {name: asdict(one) for name, one in job.columns.items()}
    identity = job_hash(asdict(job.filters), columns, wanted.duplicates, list(job.tags))
    progress = recorded(out) or Progress(identity)
    if progress.job != identity:
        hint = "give the settings that it began with, or another folder with -o"
        raise UserError("was begun with other settings", place=str(out), hint=hint)
    writer = Writer(out, progress)
    try:
        texts = _write(writer, job, wanted, Seen(out) if wanted.duplicates else None, report)
    finally:
        writer.close()
    kind = kind_of(schema)
    named = {name: hash_file(out / name) for name in (*VALID[kind], *sorted(set(tokenizer.files().values())))}
    parts, files = _parts(wanted, writer.progress, texts), {**writer.files(), **named}
    manifest = Manifest(kind, job.columns, schema.longest, parts, files, _request(spec, schema, wanted))
    if not manifest.rows:
        raise _nothing_left(wanted)
    write_manifest(manifest, out)
    for name in (PROGRESS, LOCK):
        (out / name).unlink(missing_ok=True)
    return manifest


def _write(writer: Writer, job: Job, wanted: Preparation, seen: Seen | None, report: Report) -> Sequence[str]:
    """Write what is not written yet; the hash of the text of each corpus."""
    progress, told, texts = writer.progress, time.monotonic(), writer.progress.texts
    chunks = read_chunks([corpus.files for corpus in wanted.corpora], tuple(job.columns), seen)
    missing = after(chunks, sum(done.chunks for done in progress.done), progress.texts)
    for chunk, encoded in encode_chunks(missing, job, wanted.workers):
        dropped = Counter(chunk.dropped) + Counter(encoded.dropped)
        writer.append(chunk.corpus, replace(encoded, dropped=dropped))
        texts = chunk.texts
        if time.monotonic() - told > RECORD_SECONDS:
            writer.record(texts)
            done = writer.progress.done
            report(Note(chunk.size, sum(one.rows for one in done), sum(sum(one.tokens.values()) for one in done)))
            told = time.monotonic()
    return texts


def _parts(wanted: Preparation, progress: Progress, texts: Sequence[str]) -> list[Part]:
    largest = max(done.rows for done in progress.done)
    return [
        Part(
            corpus.name,
            done.rows,
            done.blocks,
            done.tokens,
            done.dropped,
            corpus.weight * (largest / max(done.rows, 1)) ** (1 - 1 / wanted.temperature),
            text,
        )
        for corpus, done, text in zip(wanted.corpora, progress.done, texts, strict=True)
    ]


def _job(schema: DataSchema, wanted: Preparation, tokenizer: Tokenizer, out: Path) -> Job:
    names, files = vocabulary_names(schema), tokenizer.files()
    longest = schema.longest if schema.task == "translation" else None
    return Job(
        stored_columns(schema, tokenizer),
        {column: out / files[name] for column, name in names.items()},
        {column: tokenizer.vocabularies[name].special for column, name in names.items()},
        Filters(longest, wanted.max_ratio, wanted.copies, wanted.languages),
        [corpus.tag for corpus in wanted.corpora],
    )


def _write_validation(schema: DataSchema, files: Files, out: Path) -> None:
    texts = read_texts(files, schema.columns)
    for name, column in zip(VALID[kind_of(schema)], schema.columns, strict=True):
        with atomic_write(out / name) as part:
            part.write_text("".join(f"{text}\n" for text in texts.columns[column]), encoding="utf-8", newline="\n")


def _tokenizer(spec: Spec, schema: DataSchema, wanted: Preparation, out: Path) -> Tokenizer:
    """The given run's tokenizer, that of a preparation that goes on, or one that is trained on the text."""
    section = spec.train.tokenizer
    files = tokenizer_files(schema.texts, shared=section.shared).values()
    if schema.objective is not None and is_foreign(out, schema):
        raise UserError("special_tokens: examples of an objective have xformc's own", hint="remove the section")
    if wanted.tokenizer is not None:
        given = own_tokenizer if wanted.tokenizer.is_file() and wanted.tokenizer.suffix in SUFFIXES else tokenizer_of
        tokenizer = with_symbols(given(wanted.tokenizer, schema), section.symbols, schema.vocabularies)
    elif all((out / file).is_file() for file in files):
        return load_for(schema, section, out)
    elif is_foreign(out, schema):
        hint = "give a tokenizer that has them, or that of an import, by --tokenizer"
        raise UserError("special_tokens: xformc trains vocabularies with its own special tokens", hint=hint)
    else:
        rows = chain.from_iterable(read_rows(corpus.files, schema.columns) for corpus in wanted.corpora)
        columns = _sampled(rows, schema.columns, wanted)
        shared, own = section.shared, list(section.symbols)
        if schema.objective is not None:
            first, *others = schema.texts
            columns, shared = {first: columns["text"], **{name: list[str]() for name in others}}, True
            own += symbols(schema.objective)
        tokenizer = train_tokenizer(columns, schema.vocabularies, kind=section.kind, shared=shared, symbols=own)
    if schema.objective is not None:
        noise_of(schema.objective, tokenizer.vocabularies[schema.texts[0]])
    save_tokenizer(tokenizer, out)
    return tokenizer


def _nothing_left(wanted: Preparation) -> UserError:
    return UserError("no row is left", place=str(wanted.corpora[0].files[0]), hint="loosen the filters")


def _sampled(rows: Iterator[Row], columns: Sequence[str], wanted: Preparation) -> Mapping[str, Sequence[str]]:
    """At most SAMPLE rows, each with the same probability (Vitter 1985, algorithm R)."""
    draw, kept = Random(0), list[Row]()
    for count, row in enumerate(row for row in rows if all(row)):
        if count < SAMPLE:
            kept.append(row)
        elif (place := draw.randrange(count + 1)) < SAMPLE:
            kept[place] = row
    if not kept:
        raise _nothing_left(wanted)
    return dict(zip(columns, map(list, zip(*kept, strict=True)), strict=True))
