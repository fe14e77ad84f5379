"""The library of kernels that engines of target native need: where it is, and whether it is the right one.

It is never built here: `xformc kernels` does that.
"""

import ctypes
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from xformc import __version__
from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.format.names import MANIFEST
from xformc.format.operators import OPERATORS

SOURCES = Path(__file__).parent / "kernels"
"""The folder of the library's C++ sources, which come with the package."""

VARIABLE = "XFORMC_KERNELS"
"""The environment variable that names a library to use in place of the one in the cache."""

BUILD = "build the kernels here with `xformc kernels`"
"""The hint where there is no library that can be used."""

_HASH_DIGITS = 12
_ERROR = "error: "
"""What the library begins with where it has a reason in place of instruction sets."""


@dataclass(frozen=True)
class Library:
    """A library that loads and has this xformc's operators.

    `sources` is the hash of what it was compiled from, and `instructions` are the instruction sets that it uses here.
    Its sources may be others than those of this xformc: whoever changes the kernels runs their own build.
    """

    path: Path
    sources: str
    instructions: str


def find_library() -> Library:
    """The library that native engines will use: that of the environment variable XFORMC_KERNELS, else the cache's.

    Raises: UserError if there is none, or if it cannot be loaded or is of another version.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return open_library(Path(named), hint=f"{BUILD} and unset {VARIABLE}")
    path = cached_path()
    if not path.is_file():
        raise UserError(f"no kernels of xformc {__version__} have been built here", place=str(path), hint=BUILD)
    return open_library(path)


def library_for(model: str) -> Library:
    """The library of `find_library`, for a model at this place that needs it.

    Raises: UserError that says so, and what can be done.
    """
    try:
        return find_library()
    except UserError as error:
        raise UserError(
            f"this engine is of target native and needs xformc's kernels: {_located(error)}",
            place=model,
            hint=" or ".join(filter(None, (error.hint, "rebuild the engine with --target cpu"))),
        ) from error


def check_operators(engine: Path, manifest: Manifest) -> None:
    """Raises: UserError if the engine in this folder needs operators of another version than this xformc has.

    An engine that does not record the version may be of this one.
    """
    needed = manifest.operators
    if needed in (None, OPERATORS):
        return
    upgrade = "upgrade xformc: pip install --upgrade xformc; then build its kernels with `xformc kernels`"
    raise UserError(
        f"this engine needs version {needed} of xformc's operators, and this xformc has version {OPERATORS}",
        place=str(engine / MANIFEST),
        hint=upgrade if needed > OPERATORS else "rebuild the engine with `xformc build`",
    )


def open_library(path: Path, *, hint: str = BUILD) -> Library:
    """The library at `path`, loaded into this process.

    Raises: UserError with `hint` if it cannot be loaded, is not xformc's, is of another version than this xformc, or
    has operators of another version.
    """
    if not path.is_file():
        raise UserError("no such file", place=str(path), hint=hint)
    try:
        loaded = ctypes.CDLL(str(path.resolve()))
        version, sources = _text(loaded, "version").split(" ")
        operators, instructions = int(_text(loaded, "operators")), _text(loaded, "instructions")
    except (OSError, AttributeError, ValueError) as error:
        raise UserError(f"not a library of xformc's kernels: {error}", place=str(path), hint=hint) from error
    if version != __version__:
        raise UserError(
            f"these kernels are of xformc {version}, and this is xformc {__version__}", place=str(path), hint=hint
        )
    if operators != OPERATORS:
        raise UserError(
            f"these kernels have the operators of version {operators}, and this xformc those of version {OPERATORS}",
            place=str(path),
            hint=hint,
        )
    if instructions.startswith(_ERROR):
        raise UserError(f"the kernels cannot run: {instructions.removeprefix(_ERROR)}", place=str(path))
    return Library(path.resolve(), sources, instructions)


def cached_path() -> Path:
    """Where `xformc kernels` puts the library: its name has the version, the hash of the sources and the processor."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    return _cache() / "xformc" / f"kernels-{__version__}-{sources_hash()}-{platform.machine()}{suffix}"


def sources_hash() -> str:
    """The hash of the library's sources, as their CMakeLists.txt computes it."""
    paths = [path for path in SOURCES.iterdir() if path.suffix in {".cc", ".h"} or path.name == "CMakeLists.txt"]
    lines = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in sorted(paths)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_HASH_DIGITS]


def _cache() -> Path:
    """The user's folder for caches, as the XDG base directory specification and Apple's guide say."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _located(error: UserError) -> str:
    return f"{error.place}: {error.message}"


def _text(library: ctypes.CDLL, name: str) -> str:
    function = library[f"xformc_kernels_{name}"]
    function.restype = ctypes.c_char_p
    value: bytes = function()
    return value.decode()
