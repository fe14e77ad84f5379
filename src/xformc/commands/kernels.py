"""`xformc kernels`: builds the library that engines of target native need, or says which one they use."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from xformc.runtime.kernel_build import HEADER, build_library
from xformc.runtime.library import Library, find_library, sources_hash

HEADERS_HELP = f"The folder with ONNX Runtime's {HEADER}, or one that has it inside."
CHECK_HELP = "Build nothing; say which library native engines use here, or why none."


def kernels(
    *,
    headers: Annotated[Path | None, Option(help=HEADERS_HELP)] = None,
    check: Annotated[bool, Option("--check", help=CHECK_HELP)] = False,
) -> None:
    """Build the kernels that engines of target native need, and print where they are.

    \b
    xformc kernels                                        with ONNX Runtime's headers from the system
    xformc kernels --headers onnxruntime-linux-x64-1.23.2
    xformc kernels --check

    It takes CMake, a C++17 compiler and ONNX Runtime's C++ headers. The library goes to the user's cache, once for
    each version of its sources. Where XFORMC_KERNELS names a library, engines use that one.
    """
    if check:
        for line in _described(find_library()):
            print(line)
        return
    with Console(stderr=True).status("compiling the kernels"):
        path = build_library(headers)
    print(path)


def _described(library: Library) -> list[str]:
    others = "" if library.sources == sources_hash() else f", not those of this xformc ({sources_hash()})"
    return [
        f"library       {library.path}",
        f"sources       {library.sources}{others}",
        f"instructions  {library.instructions}",
    ]
