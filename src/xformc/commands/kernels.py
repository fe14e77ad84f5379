"""`xformc kernels`: builds the library that engines of target native need, or says which one they use."""

from typing import Annotated

from typer import Option

from xformc.runtime.kernel_build import build_library
from xformc.runtime.library import Library, find_library, sources_hash
from xformc.terminal import progress_console

CHECK_HELP = "Build nothing; show which library native engines use here, or why there is none."


def kernels(*, check: Annotated[bool, Option("--check", help=CHECK_HELP)] = False) -> None:
    """Build the C++ kernels of native engines, and print where they are.

    \b
    xformc kernels
    xformc kernels --check

    A wheel of xformc contains them. Otherwise this needs CMake and a C++17 compiler, and builds them once for each
    version of their sources, into the user's cache. If XFORMC_KERNELS names a library, engines use that one.
    """
    if check:
        for line in _described(find_library()):
            print(line)
        return
    with progress_console().status("compiling the kernels"):
        path = build_library()
    print(path)


def _described(library: Library) -> list[str]:
    others = "" if library.sources == sources_hash() else f", not those of this xformc ({sources_hash()})"
    return [
        f"library       {library.path}",
        f"sources       {library.sources}{others}",
        f"instructions  {library.instructions}",
    ]
