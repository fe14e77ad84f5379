"""Writes blocks into the files of a prepared corpus; a killed writer continues where its last record was."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import numpy as np

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.trainer.data.shards.blocks import ENTRY
from xformc.trainer.data.shards.encoding import Encoded
from xformc.trainer.data.shards.manifest import BLOCKS, LOCK, PROGRESS, File, hash_file, shard_name

SHARD_BYTES = 1 << 28
"""A file of blocks is closed when it has this many bytes."""


@dataclass(frozen=True)
class Done:
    """What of one corpus is written: its chunks, rows, blocks and tokens, and the rows dropped for each reason."""

    chunks: int = 0
    rows: int = 0
    blocks: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])

    def plus(self, chunk: Encoded) -> "Done":
        """With one more chunk."""
        return Done(
            self.chunks + 1,
            self.rows + sum(block.rows for block in chunk.blocks),
            self.blocks + len(chunk.blocks),
            dict(Counter(self.tokens) + Counter(chunk.tokens)),
            dict(Counter(self.dropped) + Counter(chunk.dropped)),
        )


@dataclass(frozen=True)
class Progress:
    """How far a preparation has come. job: a hash of its settings. texts: the hash of each corpus up to here. shard,
    bytes: the file that is written, and its length."""

    job: str
    texts: Sequence[str] = ()
    done: Sequence[Done] = ()
    shard: int = 0
    bytes: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks that are written."""
        return sum(done.blocks for done in self.done)


class Writer:
    """Appends chunks of blocks to the files of `folder`, and records its progress."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder = folder
        self.progress = progress
        self._index = cut(folder / BLOCKS, progress.blocks * ENTRY.itemsize).open("ab")
        self._file = cut(folder / shard_name(progress.shard), progress.bytes).open("ab")

    def append(self, corpus: int, chunk: Encoded) -> None:
        """Write a chunk of a corpus."""
        progress = self.progress
        entries = np.zeros(len(chunk.blocks), ENTRY)
        for index, block in enumerate(chunk.blocks):
            if progress.bytes and progress.bytes + len(block.content) > SHARD_BYTES:
                self._file.close()
                progress = replace(progress, shard=progress.shard + 1, bytes=0)
                self._file = (self._folder / shard_name(progress.shard)).open("wb")
            entries[index] = (progress.shard, progress.bytes, len(block.content), block.rows, block.crc32)
            self._file.write(block.content)
            progress = replace(progress, bytes=progress.bytes + len(block.content))
        self._index.write(entries.tobytes())
        done = [*progress.done, *[Done()] * (corpus + 1 - len(progress.done))]
        done[corpus] = done[corpus].plus(chunk)
        self.progress = replace(progress, done=done)

    def record(self, texts: Sequence[str]) -> None:
        """Record what is written, for texts with these hashes."""
        self._file.flush()
        self._index.flush()
        self.progress = replace(self.progress, texts=texts)
        with atomic_write(self._folder / PROGRESS) as part:
            part.write_text(json.dumps(asdict(self.progress)), encoding="utf-8")

    def close(self) -> None:
        """Close the files."""
        with self._index:
            self._file.close()

    def files(self) -> dict[str, File]:
        """The files of blocks, with their hashes."""
        names = [BLOCKS, *(shard_name(index) for index in range(self.progress.shard + 1))]
        return {name: hash_file(self._folder / name) for name in names}


def recorded(folder: Path) -> Progress | None:
    """What a preparation has recorded in `folder`; None if there is none. Raises: UserError if it is damaged."""
    path = folder / PROGRESS
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        done = [Done(**one) for one in content.pop("done")]
        return Progress(done=done, **content)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("is damaged", place=str(path), hint="remove the folder, and start again") from error


@contextmanager
def begun(folder: Path, files: Collection[str], *, resume: bool) -> Generator[None]:
    """Make and lock a folder that is prepared; one that was begun before needs `resume`.

    After an error that leaves nothing but `files` in it, which would be written again, they are removed.

    Raises: UserError if the folder has files and is not resumed, or if another process holds the lock.
    """
    made, goes_on = not folder.exists(), (folder / LOCK).exists()
    if not made and any(folder.iterdir()) and not (resume and goes_on):
        hint = "continue it with --resume" if goes_on else "give --output a new folder"
        raise UserError("already exists", place=str(folder), hint=hint)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield
        except BaseException:
            left = [path for path in folder.iterdir() if path.name != LOCK]
            if all(path.name in files for path in left):
                for path in (*left, folder / LOCK):
                    path.unlink()
                if made:
                    folder.rmdir()
            raise


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder that is prepared. Raises: UserError if another process holds it."""
    with (folder / LOCK).open("ab") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            hint = "wait until it has ended, or choose another folder with -o"
            raise UserError("another process is preparing this corpus", place=str(folder), hint=hint) from error
        yield


def job_hash(*settings: object) -> str:
    """A hash of what must not change when a preparation continues."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def cut(path: Path, size: int) -> Path:
    """Cut off what was written to a file after the last record. Raises: UserError if it is shorter."""
    path.touch()
    if path.stat().st_size < size:
        raise UserError("is shorter than recorded", place=str(path), hint="remove the folder, and start again")
    with path.open("r+b") as file:
        file.truncate(size)
    return path
