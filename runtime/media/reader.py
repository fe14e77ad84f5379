"""The interface of a reader of files, and the registry of readers by the suffix of their files."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.rows import Array


class FileReader(ABC):
    """Reads one kind of files as an input of an example. A new kind is a subclass that `register` adds.

    suffixes: those of its files, in lower case, such as `.wav`.
    """

    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def reads(self, item: Input) -> bool:
        """Whether its files can hold this input."""

    @abstractmethod
    def read(self, path: Path, item: Input) -> Array:
        """Return the input as a row has it. Raises: OSError; UserError for a file that is damaged or does not fit."""


READERS: dict[str, FileReader] = {}
"""Every reader by the suffixes of its files; filled at import."""


def register(reader: FileReader) -> None:
    """Add a reader."""
    for suffix in reader.suffixes:
        assert suffix not in READERS, f"there is already a reader of {suffix} files"
        READERS[suffix] = reader


def suffixes_of(item: Input) -> tuple[str, ...]:
    """Return the suffixes of the files that can hold an input; empty if none can."""
    return tuple(suffix for suffix, reader in READERS.items() if reader.reads(item))


def read_file(path: Path, name: str, item: Input) -> Array:
    """Return the input `name` from a file.

    Raises: UserError with the path, for a file that cannot be read, has another suffix, or does not fit the input.
    """
    suffixes = suffixes_of(item)
    if path.suffix.lower() not in suffixes:
        *others, last = suffixes
        listed = f"{', '.join(others)} or {last}" if others else last
        raise UserError(
            f"'{name}' is read from a {listed} file", place=str(path), hint="or give arrays, as an .npz file"
        )
    try:
        array = READERS[path.suffix.lower()].read(path, item)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    except ValueError as error:
        raise UserError(f"not the name of a file: {error}", place=repr(str(path))) from error
    if item.longest is not None and item.is_sequence and len(array) > item.longest:
        found = f"{len(array):,} positions; this engine takes at most {item.longest:,}"
        raise UserError(found, place=str(path), hint="cut it into shorter files")
    return array
