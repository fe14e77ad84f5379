"""Builds the library of kernels: finds ONNX Runtime's headers, and compiles the package's sources with CMake."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.runtime.library import SOURCES, cached_path, open_library
from xformc.runtime.onnx_runtime import onnx_runtime

HEADER = "onnxruntime_cxx_api.h"
OLDEST_API = 23


def build_library(headers: Path | None) -> Path:
    """Return the path of the library in the user's cache, compiling it if it is missing.

    `headers` is passed to `find_headers`.

    Raises: UserError if headers or tools are missing, the cache cannot be written, or the compiler fails.
    """
    path = cached_path()
    if not path.is_file():
        _compile(path, find_headers(headers))
    return path


def find_headers(given: Path | None) -> Path:
    """Return the folder with ONNX Runtime's C++ headers, searched for in `given` or in the system's include folders.

    Raises: UserError if there are none, or if they do not fit the installed ONNX Runtime.
    """
    if given is not None:
        found = sorted(given.rglob(HEADER))
        if not found:
            raise UserError(f"no {HEADER} in this folder", place=str(given), hint=GET_HEADERS)
    else:
        found = [folder / HEADER for folder in _system_folders() if (folder / HEADER).is_file()]
        if not found:
            raise UserError(f"ONNX Runtime's C++ headers ({HEADER}) are not installed", hint=GET_HEADERS)
    _check_version(found[0].parent)
    return found[0].parent


def _system_folders() -> list[Path]:
    roots = (Path(sys.prefix) / "include", *map(Path, ("/usr/include", "/usr/local/include", "/opt/homebrew/include")))
    return [root / below for root in roots for below in ("onnxruntime", "", "onnxruntime/core/session")]


def _check_version(folder: Path) -> None:
    """Raises: UserError if the headers are too old, or newer than the package, which could not load the library."""
    text = (folder / "onnxruntime_c_api.h").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^#define ORT_API_VERSION (\d+)", text, re.MULTILINE)
    package = str(onnx_runtime().__version__)
    version, installed = int(match[1]) if match else 0, int(package.split(".")[1])
    if not OLDEST_API <= version <= installed:
        raise UserError(
            f"these headers are from ONNX Runtime 1.{version}; the kernels need 1.{OLDEST_API} or newer, but not newer "
            f"than the installed package, {package}",
            place=str(folder),
            hint=GET_HEADERS,
        )


def _compile(path: Path, headers: Path) -> None:
    """Compile the library and write it to `path` atomically."""
    cmake = _tool("cmake")
    _check_writable(path.parent)
    with tempfile.TemporaryDirectory(prefix="xformc-kernels-") as folder:
        _run(cmake, "-S", str(SOURCES), "-B", folder, f"-DONNXRUNTIME_INCLUDE_DIR={headers.resolve()}")
        _run(cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1))
        built = next(Path(folder).glob(f"libxformc_kernels{path.suffix}"))
        open_library(built)
        with atomic_write(path) as temporary:
            shutil.copyfile(built, temporary)


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


def _tool(name: str) -> str:
    """Return the path of a program on PATH or in this Python's environment, where a package may have installed it."""
    own = str(Path(sys.executable).parent)
    found = shutil.which(name) or shutil.which(name, path=own)
    if found is None:
        raise UserError(f"building the kernels needs {name}, which is not installed", hint=GET_TOOLS)
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        end = "\n  ".join(line for line in done.stdout.splitlines()[-_SHOWN:] if line.strip())
        raise UserError(f"the kernels could not be built: {' '.join(command)}\n  {end}", hint=GET_TOOLS)


_SHOWN = 20
GET_TOOLS = "install CMake 3.18 or newer and a C++17 compiler; on Debian and Ubuntu: apt install cmake g++"
GET_HEADERS = (
    "install your system's package (Debian and Ubuntu: apt install libonnxruntime-dev), or unpack a release from "
    "https://github.com/microsoft/onnxruntime/releases and pass its folder: xformc kernels --headers DIR"
)
