"""Finds and checks the library of kernels that engines of target native need.

`xformc kernels` builds it (kernel_build.py); nothing here does.
"""

import ctypes
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xformc import __version__
from xformc.errors import UserError
from xformc.format.manifest import OTHER_VERSION, Manifest
from xformc.format.names import MANIFEST
from xformc.format.operators import OPERATORS
from xformc.format.targets import Target, TargetWord

SOURCES = Path(__file__).parent
"""The folder of the library's CMakeLists.txt; its C++ sources are in the folders below."""

PACKAGE = Path(__file__).parents[1]
"""The folder of xformc. In a wheel, the library is installed below it as below a prefix: lib/, include/, bin/."""

VARIABLE = "XFORMC_KERNELS"
"""The environment variable that names a library to use instead of the package's and the cached one."""

BUILD = "build the kernels here with `xformc kernels`"
"""The hint if there is no usable library."""

_SOURCES = (
    *("CMakeLists.txt", "kernels/CMakeLists.txt", "kernels/*.cc", "kernels/*.h"),
    *(f"cpp/**/*.{ending}" for ending in ("cc", "h", "hpp", "cmake", "in", "txt")),
)
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
_HASH_DIGITS = 12
_ERROR = "error: "
"""The prefix of the library's list of instruction sets if it is an error message instead."""


@dataclass(frozen=True)
class Library:
    """A library that loads and has this xformc's operators.

    sources: the hash of the sources it was compiled from. It may differ from this xformc's, so that a changed kernel
        can be tried.
    instructions: the instruction sets that it uses on this machine.
    """

    path: Path
    sources: str
    instructions: str


def find_library() -> Library:
    """Return the library for native engines: the one that XFORMC_KERNELS names, the package's, or the cached one.

    Raises: UserError if there is none, if it cannot be loaded, or if it has another version.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return open_library(Path(named), hint=f"{BUILD} and unset {VARIABLE}")
    path = built_path()
    if not path.is_file():
        raise UserError(f"the kernels of xformc {__version__} have not been built", place=str(path), hint=BUILD)
    return open_library(path)


def choose_target(word: TargetWord) -> tuple[Target, str | None]:
    """Return the target that the word stands for and, if auto is not native, the line that says why.

    auto is native if `find_library` finds a library, else cpu.
    """
    if word != "auto":
        return word, None
    try:
        find_library()
    except UserError as error:
        advice = "" if error.hint is None else f"; {error.hint}"
        return "cpu", f"target cpu; the faster native needs kernels: {_located(error)}{advice}"
    return "native", None


def library_for(model: str) -> Library:
    """Return the result of `find_library` for the model at the path `model`.

    Raises: UserError at that path if there is no usable library.
    """
    try:
        return find_library()
    except UserError as error:
        raise UserError(
            f"this engine was built for target native and needs xformc's kernels: {_located(error)}",
            place=model,
            hint=", or ".join(filter(None, (error.hint, "rebuild the engine with `xformc build --target cpu`"))),
        ) from error


def check_operators(engine: Path, manifest: Manifest) -> None:
    """Check that this xformc has the version of the operators that the engine needs, if it needs any.

    Raises: UserError if it needs another version.
    """
    if manifest.operators in (None, OPERATORS):
        return
    raise UserError(
        f"this engine needs version {manifest.operators} of xformc's operators; this xformc has version {OPERATORS}",
        place=str(engine / MANIFEST),
        hint=OTHER_VERSION,
    )


def open_library(path: Path, *, hint: str = BUILD) -> Library:
    """Load the library at `path` into this process.

    Raises: UserError with `hint` if it cannot be loaded, is not xformc's, or has another version of xformc or of its
    operators.
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
            f"these kernels belong to xformc {version}; this is xformc {__version__}", place=str(path), hint=hint
        )
    if operators != OPERATORS:
        raise UserError(
            f"these kernels have version {operators} of xformc's operators; this xformc has version {OPERATORS}",
            place=str(path),
            hint=hint,
        )
    if instructions.startswith(_ERROR):
        raise UserError(f"the kernels cannot run: {instructions.removeprefix(_ERROR)}", place=str(path))
    return Library(path.resolve(), sources, instructions)


def built_path() -> Path:
    """Return the path of the library that came with the package, or else the path that `xformc kernels` builds."""
    packaged = PACKAGE / "lib" / f"libxformc{_SUFFIX}"
    return packaged if packaged.is_file() else cached_path()


def cached_path() -> Path:
    """Return the path in the user's cache: it names the version, the hash of the sources and the machine."""
    folder = f"{__version__}-{_hash_once(SOURCES)}-{platform.machine()}"
    return _cache() / "xformc" / folder / f"libxformc{_SUFFIX}"


def sources_hash() -> str:
    """Return the hash of the library's sources, as CMakeLists.txt computes it."""
    return _hash_of(SOURCES)


def _hash_of(folder: Path) -> str:
    paths = {path.relative_to(folder).as_posix(): path for glob in _SOURCES for path in folder.glob(glob)}
    lines = [f"{name} {hashlib.sha256(paths[name].read_bytes()).hexdigest()}\n" for name in sorted(paths)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_HASH_DIGITS]


_hash_once = cache(_hash_of)
"""Each load of an engine asks for it."""


def _cache() -> Path:
    """Return the user's cache folder, by the XDG base directory specification or Apple's guide."""
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
