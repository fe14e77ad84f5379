"""Atomic writes: a reader sees the whole old content or the whole new one, never a part; and errors of writing."""

import errno
import os
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE

from xformc.errors import UserError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of a write that finds no room; the system does not say of which file."""


@contextmanager
def atomic_write(path: Path) -> Generator[Path]:
    """Yield a temporary file name beside `path`; the file replaces `path` when the block succeeds.

    A link is followed. The file keeps the mode of the one that it replaces; a new one has the usual mode. Missing
    folders are made.

    Raises: UserError that names `path` if it cannot be written; whatever else the block raises. Then nothing is left of
    it, and `path` is unchanged.
    """
    target = path.resolve()
    temporary = _sibling(target)
    with _named(path, temporary), _folder(target.parent):
        try:
            temporary.touch()
            mode = (target if target.exists() else temporary).stat().st_mode
            yield temporary
            temporary.chmod(S_IMODE(mode))
            flush(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, *, replace: bool = True) -> Generator[Path]:
    """Yield a temporary empty folder beside `path`; it replaces `path` when the block succeeds.

    Without `replace`, `path` must not exist or must be an empty folder. Missing folders around it are made.

    Raises: as `atomic_write`.
    """
    temporary = _sibling(path)
    with _named(path, temporary), _folder(path.parent):
        try:
            temporary.mkdir()
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
        raise _unwritable(path, error, hint) from error


def _unwritable(path: Path, error: OSError, hint: str | None = None) -> UserError:
    what = f"cannot be written: {error.strerror or error}"
    return UserError(what, place=str(path), hint=hint if error.errno in FULL else None)


@contextmanager
def _named(path: Path, temporary: Path) -> Generator[None]:
    """`writing` for errors of the temporary file or folder, of what is in it, and of the folders around it alone."""
    try:
        yield
    except OSError as error:
        failed = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        own = failed is not None and (failed.is_relative_to(temporary) or temporary.is_relative_to(failed))
        if own or error.errno in FULL:
            raise _unwritable(path, error) from error
        raise


@contextmanager
def _folder(path: Path) -> Generator[None]:
    """Make a folder and those around it. If the block fails, those that are new are removed, unless others use them."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
        raise


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
