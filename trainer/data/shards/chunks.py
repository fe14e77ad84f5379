"""Cuts corpora of text into chunks; the same text gives the same chunks."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from xformc.errors import UserError
from xformc.trainer.data.shards.seen import Seen
from xformc.trainer.data.splits import Files
from xformc.trainer.data.text_files import Row, read_rows, row_bytes

ROWS, BYTES = 16_384, 1 << 23
"""A chunk ends with the row that brings it to so many lines, or so many bytes."""

EMPTY, DUPLICATE = "with an empty column", "duplicates"


@dataclass(frozen=True)
class Chunk:
    """A part of a corpus. corpus: its number. dropped: the number of lines that are not rows, for each reason.

    texts: the hash of the text of each corpus up to here. size: bytes of the text up to here.
    """

    corpus: int
    rows: Sequence[Row]
    dropped: Mapping[str, int]
    texts: Sequence[str]
    size: int


def read_chunks(corpora: Sequence[Files], columns: Sequence[str], seen: Seen | None) -> Iterator[Chunk]:
    """Yield the chunks of each corpus, at least one; without the rows that are `seen`. Raises: as `read_rows`."""
    ended, size = list[str](), 0
    for number, files in enumerate(corpora):
        digest, lines, more = hashlib.sha256(), read_rows(files, columns), True
        while more:
            rows, empty, content = _next_rows(lines)
            more = bool(rows or empty)
            digest.update(content)
            size += len(content)
            kept = rows if seen is None else seen.unseen(rows)
            dropped = Counter({EMPTY: empty, DUPLICATE: len(rows) - len(kept)})
            yield Chunk(number, kept, +dropped, [*ended, digest.hexdigest()], size)
        ended.append(digest.hexdigest())


def after(chunks: Iterator[Chunk], count: int, texts: Sequence[str]) -> Iterator[Chunk]:
    """Yield the chunks after the first `count`, whose text had these hashes. Raises: UserError if it has others."""
    last = deque(islice(chunks, count), maxlen=1)
    if count and (not last or list(last[0].texts) != list(texts)):
        raise UserError("the text has changed since the preparation began", hint="prepare it into a new folder with -o")
    yield from chunks


def _next_rows(lines: Iterator[Row]) -> tuple[list[Row], int, bytes]:
    """The next rows, the number of lines with an empty column among them, and what the rows add to the hash."""
    rows, empty, size, contents = list[Row](), 0, 0, list[bytes]()
    for row in islice(lines, ROWS):
        if all(row):
            rows.append(row)
            contents.append(row_bytes(row))
            size += len(contents[-1])
        else:
            empty += 1
        if size >= BYTES:
            break
    return rows, empty, b"".join(contents)
