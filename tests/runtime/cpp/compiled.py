"""Compiles programs against libxformc and runs them; without the library or a compiler, their tests are skipped."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import Result

from tests.runtime.kernel_session import kernel_library
from xformc.runtime.library import SOURCES
from xformc.runtime.libxformc import onnx_library

CPP = SOURCES / "cpp"
"""The sources of the C++ runtime."""

WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Wconversion", "-Werror")
GNU = ("gcc", "g++")


def compiler(name: str) -> str:
    """The path of a compiler; without it, the test is skipped."""
    return shutil.which(name) or pytest.skip(f"no {name}")


def compile_program(program: Path, *sources: Path, standard: str = "c++17", compilers: tuple[str, str] = GNU) -> Path:
    """Compile C or C++ sources to `program`, linked with the library; a warning is an error."""
    c, cpp = compilers
    link = program.parent / "libxformc.so"
    if not link.exists():
        link.symlink_to(kernel_library())
    command = [
        compiler(cpp if standard.startswith("c++") else c), f"-std={standard}", *WARNINGS, f"-I{CPP / 'include'}",
        *sources, "-o", program, link, f"-Wl,-rpath,{program.parent}", "-pthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def environment() -> dict[str, str]:
    """The environment in which a program finds ONNX Runtime."""
    return {**os.environ, "XFORMC_ONNXRUNTIME": str(onnx_library())}


def run(*command: str | Path, stdin: str | bytes = b"") -> Result:
    """How a program ended."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(command, input=data, capture_output=True, check=False, env=environment(), timeout=120)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())
