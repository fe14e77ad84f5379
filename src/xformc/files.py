"""Atomic writes: a reader sees the whole old content or the whole new one, never a part; and errors of writing."""

import errno
import os
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE

from xformc.errors import UserError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of a write that finds no room; the system does not say of which file."""


@contextmanager
def atomic_write(path: Path) -> Generator[Path]:
    """Yield a temporary file name beside `path`; the file replaces `path` when the block succeeds.

    A link is followed. The file keeps the mode of the one that it replaces; a new one has the usual mode.

    Raises: whatever the block raises. The temporary file is then removed, and `path` is unchanged.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(path)
    try:
        temporary.touch()
        mode = (path if path.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(S_IMODE(mode))
        flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, *, replace: bool = True) -> Generator[Path]:
    """Yield a temporary empty folder beside `path`; it replaces `path` when the block succeeds.

    Without `replace`, `path` must not exist or must be an empty folder.

    Raises: whatever the block raises. The temporary folder is then removed, and `path` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(path)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                flush(file)
        (_replace_directory if replace else os.replace)(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def writing(path: Path, hint: str | None = None) -> Generator[None]:
    """Turn a failed write (a full disk, a missing permission) into a UserError that names `path`.

    hint: what to do when the disk is full.
    """
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise UserError(what, place=str(path), hint=hint if error.errno in FULL else None) from error


def _sibling(path: Path) -> Path:
    return path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"


def flush(file: Path) -> None:
    """Bring a file's content to the disk."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def _replace_directory(new: Path, path: Path) -> None:
    if not path.exists():
        os.replace(new, path)
        return
    old = _sibling(path)
    os.replace(path, old)
    os.replace(new, path)
    shutil.rmtree(old, ignore_errors=True)
