"""`xformc cmake-dir`: says where CMake finds the C library of this install."""

from xformc.errors import UserError
from xformc.runtime.library import PACKAGE, SOURCES


def cmake_dir() -> None:
    """Print the folder of the CMake package of the C and C++ library, which a wheel of xformc contains.

    \b
    xformc cmake-dir                                        ends in lib/cmake/xformc
    cmake -S . -B build -Dxformc_DIR="$(xformc cmake-dir)"

    In the project's CMakeLists.txt, write find_package(xformc REQUIRED) and link the target xformc::xformc.
    """
    folder = PACKAGE / "lib" / "cmake" / "xformc"
    if not folder.is_dir():
        raise UserError(
            "this install of xformc has no C library",
            place=str(PACKAGE),
            hint=f"install a wheel, or build the library: cmake -S {SOURCES} -B build && cmake --build build "
            "&& cmake --install build --prefix FOLDER; its package is in FOLDER/lib/cmake/xformc",
        )
    print(folder)
