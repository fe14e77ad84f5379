"""Other projects find the C library by CMake and by pkg-config, wherever its folder is moved.

XFORMC_PREFIX names the folder of an install to test, such as a wheel's; otherwise a stand-in library is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, mistake

from xformc import __version__, xformc_run
from xformc.runtime.library import SOURCES

STAND_IN = f"""
cmake_minimum_required(VERSION 3.18)
project(xformc VERSION {__version__} DESCRIPTION "a stand-in" LANGUAGES C)
add_library(xformc SHARED xformc.c)
add_executable(xformc-run main.c)
target_include_directories(xformc-run PRIVATE {SOURCES}/cpp/include)
target_link_libraries(xformc-run PRIVATE xformc)
include({SOURCES}/cpp/cmake/install.cmake)
"""
CONSUMER = """
cmake_minimum_required(VERSION 3.18)
project(consumer LANGUAGES C)
find_package(xformc {version} REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE xformc::xformc)
"""
LIBRARY = f'const char* xformc_version(void) {{ return "{__version__}"; }}\n'
PROGRAM = "#include <stdio.h>\n#include <xformc.h>\nint main(void) { return puts(xformc_version()) < 0; }\n"


def tool(name: str) -> str:
    """The path of a program, or the test is skipped."""
    own = str(Path(sys.executable).parent)
    return shutil.which(name) or shutil.which(name, path=own) or pytest.skip(f"no {name}")


def run(*command: str | Path, **variables: str) -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def configure(folder: Path, project: str, *options: str) -> list[str | Path]:
    """Write a project with C sources to `folder`; returns the command that configures it."""
    folder.mkdir()
    for name, text in (("CMakeLists.txt", project), ("main.c", PROGRAM), ("xformc.c", LIBRARY)):
        (folder / name).write_text(text)
    make = f"-DCMAKE_MAKE_PROGRAM={tool('make')}"
    return [tool("cmake"), "-S", folder, "-B", folder / "build", make, f"-DCMAKE_C_COMPILER={tool('cc')}", *options]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the library was installed, and which was then moved."""
    moved = tmp_path_factory.mktemp("packaging") / "moved here"
    if given := os.environ.get("XFORMC_PREFIX"):
        shutil.copytree(given, moved, ignore=shutil.ignore_patterns("*.py", "*.yaml"))
        return moved
    project = moved.parent / "stand-in"
    run(*configure(project, STAND_IN, "-DCMAKE_INSTALL_LIBDIR=lib"))
    run(tool("cmake"), "--build", project / "build")
    run(tool("cmake"), "--install", project / "build", "--prefix", moved.parent / "installed")
    (moved.parent / "installed").rename(moved)
    return moved


def test_a_project_finds_the_library_and_runs(prefix: Path, tmp_path: Path) -> None:
    folder = tmp_path / "consumer"
    run(*configure(folder, CONSUMER.format(version=__version__), f"-Dxformc_DIR={prefix}/lib/cmake/xformc"))
    run(tool("cmake"), "--build", folder / "build")
    assert run(folder / "build" / "consumer") == f"{__version__}\n"


def test_a_project_may_contain_the_library(tmp_path: Path) -> None:
    folder = tmp_path / "a consumer"
    found = "find_package(xformc {version} REQUIRED)"
    project = CONSUMER.replace(found, "add_subdirectory(library)\n")
    command = configure(folder, project)
    configure(folder / "library", STAND_IN)
    run(*command)
    run(tool("cmake"), "--build", folder / "build")
    assert run(folder / "build" / "consumer") == f"{__version__}\n"


def test_a_project_that_needs_a_newer_version_is_told(prefix: Path, tmp_path: Path) -> None:
    command = configure(tmp_path / "consumer", CONSUMER.format(version="99.0"), f"-DCMAKE_PREFIX_PATH={prefix}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and "99.0" in done.stderr and f"version: {__version__}" in done.stderr


def test_pkg_config_finds_the_library(prefix: Path, tmp_path: Path) -> None:
    pkg_config = tool("pkg-config")
    search = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    assert run(pkg_config, "--modversion", "xformc", **search) == f"{__version__}\n"
    flags = run(pkg_config, "--cflags", "--libs", "xformc", **search).replace("\\ ", "?").split()
    (tmp_path / "main.c").write_text(PROGRAM)
    run(tool("cc"), tmp_path / "main.c", "-o", tmp_path / "main", *(flag.replace("?", " ") for flag in flags))
    assert run(tmp_path / "main", LD_LIBRARY_PATH=str(prefix / "lib")) == f"{__version__}\n"


def test_the_program_finds_its_library(prefix: Path) -> None:
    assert __version__ in run(prefix / "bin" / "xformc-run", "--version")


def test_python_starts_the_program_of_a_wheel(prefix: Path) -> None:
    start = f"import xformc.xformc_run as run; run.PROGRAM = {str(prefix / 'bin' / 'xformc-run')!r}; run.main()"
    assert __version__ in run(sys.executable, "-c", start, "--version")


def test_a_missing_program_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xformc.xformc_run.PROGRAM", str(tmp_path / "xformc-run"))
    with pytest.raises(SystemExit, match="this install of xformc has no C library"):
        xformc_run.main()


def test_nothing_installed_names_the_place_where_it_was_built(prefix: Path) -> None:
    texts = [path for path in prefix.rglob("*") if path.suffix in {".cmake", ".pc"}]
    assert {path.name for path in texts} >= {"xformcConfig.cmake", "xformcConfigVersion.cmake", "xformc.pc"}
    assert [path for path in texts if str(prefix.parent) in path.read_text(encoding="utf-8")] == []


def test_the_command_names_the_folder(prefix: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine) -> None:
    monkeypatch.setattr("xformc.commands.cmake_dir.PACKAGE", prefix)
    assert xformc("cmake-dir").out == f"{prefix / 'lib' / 'cmake' / 'xformc'}\n"


def test_the_command_says_how_to_get_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine
) -> None:
    monkeypatch.setattr("xformc.commands.cmake_dir.PACKAGE", tmp_path)
    message = mistake(xformc("cmake-dir"))
    assert "this install of xformc has no C library" in message and f"cmake -S {SOURCES}" in message
