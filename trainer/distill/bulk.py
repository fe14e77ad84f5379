"""Decodes any amount of text into a folder of training data; a killed run continues where its last record was."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from xformc.errors import UserError
from xformc.files import atomic_write, writing
from xformc.format.certificate import CERTIFICATE_BYTES, read_certificate
from xformc.format.document import read_document
from xformc.format.manifest import Manifest, check_files
from xformc.format.names import CERTIFICATE, MANIFEST
from xformc.format.reader import read_manifest
from xformc.runtime.generation.sampling import resolve_sample_options
from xformc.runtime.options import resolve_options
from xformc.runtime.rows import Row
from xformc.runtime.searching.samples import samples_of
from xformc.runtime.text.lines import read_file_lines
from xformc.trainer.data.in_order import in_order
from xformc.trainer.data.shards.manifest import LOCK, PROGRESS
from xformc.trainer.data.shards.writer import begun, cut, job_hash
from xformc.trainer.data.splits import JSON_LINES, Files
from xformc.trainer.data.text_files import read_texts
from xformc.trainer.distill.decoder import Decoder, Decoding, Lines, Rows

CHUNK = 512
"""Lines that are decoded together, and recorded together."""

TRAIN, VALID, RECORD = f"train.{JSON_LINES}", f"valid.{JSON_LINES}", "distilled.json"
PART = f"{TRAIN}.partial"
COLUMNS: Mapping[str, tuple[str, ...]] = {"translation": ("source", "target"), "language_model": ("text",)}
"""The columns of the rows, for each task that is distilled."""


@dataclass(frozen=True)
class Distilled:
    """What is decoded. job: a hash of the engine and the options. text: the hash of the lines so far.

    lines, size: the lines that were read, and their bytes. rows, tokens, bytes: what was written. dropped: the number
    of lines without rows, by reason.
    """

    job: str
    text: str = ""
    lines: int = 0
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    size: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])

    def plus(self, chunk: Lines, rows: Rows) -> "Distilled":
        """With one more chunk."""
        return Distilled(
            self.job,
            chunk.text,
            self.lines + len(chunk.lines),
            self.rows + rows.count,
            self.tokens + rows.tokens,
            self.bytes + len(rows.content),
            chunk.size,
            dict(Counter(self.dropped) + Counter(rows.dropped)),
        )


Report = Callable[[Distilled], None]
Decoded = Callable[[Iterable[Lines]], Iterator[tuple[Lines, Rows]]]
Spread = Callable[[Iterable[Lines], Callable[[Decoding], Decoder], Decoding, int], Iterator[tuple[Lines, Rows]]]
"""How chunks are spread over processes, as `in_order` does."""


def distill(
    texts: Sequence[Path],
    decoding: Decoding,
    out: Path,
    *,
    workers: int = 1,
    valid: Files | None = None,
    resume: bool = False,
    report: Report = lambda so_far: None,
    spread: Spread = in_order,
) -> Distilled:
    """Decode every line of `texts` into `out`/train.jsonl, with `valid` as its validation data.

    The result does not depend on the number of workers, how the work is spread, nor on stops. `report` is told how far
    it is.

    Raises: UserError for an engine or options that do not fit, for bad text, and if `out` exists and is not resumed.
    What is recorded then stays there, for `resume`; before the first record, nothing is left behind.
    """
    manifest = certified(decoding)
    if resume and (out / RECORD).exists():
        done = _of_job(_read(out / RECORD), decoding, out)
        if any(True for _ in _after(_chunks(texts), done)):
            raise _changed()
        if valid is not None:
            _write_validation(valid, COLUMNS[manifest.task], out / VALID)
        return done
    room = "free some space, then continue with --resume"
    with writing(out, hint=room), begun(out, (PART, VALID), resume=resume):
        if valid is not None:
            _write_validation(valid, COLUMNS[manifest.task], out / VALID)
        return _decode(texts, decoding, out, lambda chunks: spread(chunks, Decoder, decoding, workers), report)


def certified(decoding: Decoding) -> Manifest:
    """The manifest of the engine.

    Raises: UserError for an engine that was not certified, or is of another task, and for options that are out of range
    or have no effect.
    """
    folder = decoding.engine
    manifest = read_manifest(folder)
    if manifest.task not in COLUMNS:
        message = f"{manifest.name} is an engine for {manifest.task}; teachers translate or are language models"
        raise UserError(message, place=str(folder))
    check_files(folder, manifest)
    if not read_certificate(read_document(folder / CERTIFICATE, limit=CERTIFICATE_BYTES)).passed:
        raise UserError("its certificate has not passed", place=str(folder), hint="build the engine again")
    options: Any = decoding.options
    if manifest.task == "translation":
        if decoding.samples is None:
            resolve_options(manifest, options)
        else:
            samples_of(_no_row, options, manifest=manifest, tokenizer=None, pieces=None, seed=decoding.seed)
        idle = {"seed": decoding.samples is None and decoding.seed != 0}
    else:
        resolve_sample_options(manifest, options)
        idle = {"back-translation": decoding.back, "tag": decoding.tag is not None}
    for name, given in idle.items():
        if given:
            raise UserError(f"--{name} has no effect on engines for {manifest.task}", hint="leave it out")
    return manifest


def _no_row(_line: int, _item: object) -> Row:
    """The row of nothing: only the options of samples are checked."""
    return {}


def _decode(texts: Sequence[Path], decoding: Decoding, out: Path, decoded: Decoded, report: Report) -> Distilled:
    part, progress = out / PART, out / PROGRESS
    begun = _of_job(_read(progress), decoding, out) if progress.exists() else None
    so_far = begun or Distilled(job_hash(_described(decoding)))
    with cut(part, so_far.bytes).open("ab") as file:
        for chunk, rows in decoded(_after(_chunks(texts), so_far)):
            file.write(rows.content)
            file.flush()
            so_far = so_far.plus(chunk, rows)
            _write(so_far, progress)
            report(so_far)
    if not so_far.rows:
        progress.unlink(missing_ok=True)  # there is nothing to continue
        raise UserError("has no line that the engine can decode", place=str(texts[0]))
    part.rename(out / TRAIN)
    _write(so_far, out / RECORD)
    for name in (PROGRESS, LOCK):
        (out / name).unlink(missing_ok=True)
    return so_far


def _of_job(so_far: Distilled, decoding: Decoding, out: Path) -> Distilled:
    """What is decoded. Raises: UserError if it is of another job."""
    if so_far.job != job_hash(_described(decoding)):
        hint = "give the options that it began with, or another folder with -o"
        raise UserError("was begun with another engine or other options", place=str(out), hint=hint)
    return so_far


def _changed() -> UserError:
    return UserError("the text has changed since it was begun", hint="decode it into a new folder with -o")


def _described(decoding: Decoding) -> Mapping[str, object]:
    """What determines the rows."""
    manifest = hashlib.sha256((decoding.engine / MANIFEST).read_bytes()).hexdigest()
    rest = asdict(replace(decoding, device=None))
    return {**rest, "engine": manifest, "chunk": CHUNK}


def _chunks(texts: Sequence[Path]) -> Iterator[Lines]:
    digest, first, size = hashlib.sha256(), 0, 0
    every = (line for path in texts for line in read_file_lines(path))
    while lines := list(islice(every, CHUNK)):
        content = "".join(f"{line}\n" for line in lines).encode()
        digest.update(content)
        size += len(content)
        yield Lines(first, lines, digest.hexdigest(), size)
        first += len(lines)


def _after(chunks: Iterator[Lines], so_far: Distilled) -> Iterator[Lines]:
    """The chunks that are not decoded yet. Raises: UserError if the text before them has changed."""
    text, count = "", 0
    while count < so_far.lines and (chunk := next(chunks, None)) is not None:
        text, count = chunk.text, count + len(chunk.lines)
    if (text, count) != (so_far.text, so_far.lines):
        raise _changed()
    yield from chunks


def _write_validation(files: Files, columns: Sequence[str], path: Path) -> None:
    texts = read_texts(files, columns)
    rows = zip(*(texts.columns[name] for name in columns), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows]
    with atomic_write(path) as part:
        part.write_text("".join(lines), encoding="utf-8", newline="\n")


def _write(so_far: Distilled, path: Path) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(asdict(so_far), indent=2) + "\n", encoding="utf-8")


def _read(path: Path) -> Distilled:
    try:
        return Distilled(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError("is damaged", place=str(path), hint="remove the folder, and start again") from error
