"""Builds the library of kernels: compiles the package's sources with CMake."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.runtime.library import SOURCES, built_path, open_library


def build_library() -> Path:
    """Return the path of the package's library, or of the one in the user's cache, compiling that if it is missing.

    Raises: UserError if tools are missing, the cache cannot be written, or the compiler fails.
    """
    path = built_path()
    if not path.is_file():
        _compile(path)
    return path


def _compile(path: Path) -> None:
    """Compile the library and write it to `path` atomically."""
    cmake, generator = _tool("cmake"), _generator()
    _check_writable(path.parent)
    with tempfile.TemporaryDirectory(prefix="xformc-kernels-") as folder:
        _run(cmake, "-S", str(SOURCES), "-B", folder, *generator)
        _run(cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1))
        built = next(Path(folder).glob(f"libxformc{path.suffix}"))
        open_library(built)
        with atomic_write(path) as temporary:
            shutil.copyfile(built, temporary)


def _generator() -> list[str]:
    """Return CMake's options for the program that runs the compiler: make, CMake's own choice, or Ninja."""
    if shutil.which("make"):
        return []
    return ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja', 'make or ninja')}"]


def _check_writable(folder: Path) -> None:
    """Create `folder` if it is missing. Raises: UserError if no file can be created in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"the library of kernels cannot be written here: {error.strerror}",
            place=str(folder),
            hint="set XDG_CACHE_HOME to a writable folder",
        ) from error


def _tool(name: str, needed: str = "") -> str:
    """Return the path of a program on PATH or in this Python's environment, where a package may have installed it."""
    own = str(Path(sys.executable).parent)
    found = shutil.which(name) or shutil.which(name, path=own)
    if found is None:
        raise UserError(f"building the kernels needs {needed or name}, which is not installed", hint=GET_TOOLS)
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        end = "\n  ".join(line for line in done.stdout.splitlines()[-_SHOWN:] if line.strip())
        raise UserError(f"the kernels could not be built: {' '.join(command)}\n  {end}", hint=GET_TOOLS)


_SHOWN = 20
GET_TOOLS = (
    "install a C++17 compiler and CMake 3.18 or newer; on Debian and Ubuntu: apt install g++ cmake make, or "
    "apt install g++ and pip install cmake ninja"
)
