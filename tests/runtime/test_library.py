"""The library of kernels and engines that need it; tests that need a compiler are skipped without one."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import onnx
import pytest
from command_line import CommandLine, mistake
from tiny_engine import copy_model, write_manifest

from tests.runtime.kernel_session import kernel_library
from xformc import __version__
from xformc.errors import UserError
from xformc.format.operators import DOMAIN, OPERATORS
from xformc.format.targets import Target
from xformc.runtime import load
from xformc.runtime.library import (
    BUILD,
    SOURCES,
    VARIABLE,
    cached_path,
    choose_target,
    find_library,
    open_library,
    sources_hash,
)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither the variable nor the package nor the cache has a library; returns the cache's folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("xformc.runtime.library.PACKAGE", tmp_path / "xformc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tools() -> None:
    """The programs that a build needs, or the test is skipped."""
    path = f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}"
    if shutil.which("cmake", path=path) is None or not (shutil.which("make") or shutil.which("ninja", path=path)):
        pytest.skip("no CMake, make or Ninja")


@pytest.fixture
def native_engine(own_engine: Path) -> Path:
    """The engine that copies, with one of xformc's own operators beside the rest, and of target native."""
    model = copy_model()
    model.graph.node.append(onnx.helper.make_node("Cache", ["one"], ["unused"], domain=DOMAIN, name="cache"))
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, OPERATORS))
    onnx.save(model, own_engine / "model.onnx")
    change_manifest(own_engine, {"target": "native", "operators": OPERATORS})
    return own_engine


def change_manifest(engine: Path, changes: dict[str, object]) -> None:
    """Change keys of engine.json; one that becomes None is left out."""
    path = engine / "engine.json"
    content = {**json.loads(path.read_text()), **changes}
    path.unlink()
    dropped = ("files", "checksum", *(key for key, value in changes.items() if value is None))
    write_manifest(engine, {key: value for key, value in content.items() if key not in dropped})


def fake_library(path: Path, version: str, instructions: str = "abacus, fingers", operators: int = OPERATORS) -> Path:
    """A library that says this of itself, and has nothing else."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(
        f'const char* xformc_kernels_version(void) {{ return "{version}"; }}\n'
        f'const char* xformc_kernels_operators(void) {{ return "{operators}"; }}\n'
        f'const char* xformc_kernels_instructions(void) {{ return "{instructions}"; }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source], check=True)
    return path


def test_the_cache_is_where_the_system_has_caches(no_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_path().parent.parent == no_library / "xformc"
    assert cached_path().parent.name.startswith(f"{__version__}-{sources_hash()}-")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cached_path().is_relative_to(Path.home())


@pytest.fixture
def copied_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the library's sources, which xformc uses instead of its own."""
    shutil.copytree(SOURCES, tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("xformc.runtime.library.SOURCES", tmp_path / "runtime")
    monkeypatch.setattr("xformc.runtime.kernel_build.SOURCES", tmp_path / "runtime")
    return tmp_path / "runtime"


@pytest.mark.parametrize("source", ["CMakeLists.txt", "kernels/kernel.h", "kernels/new.cc", "cpp/a/new.hpp"])
def test_the_hash_changes_with_any_source(copied_sources: Path, source: str) -> None:
    before = sources_hash()
    (copied_sources / "kernels" / "notes.txt").write_text("no source")
    assert sources_hash() == before
    (copied_sources / source).parent.mkdir(parents=True, exist_ok=True)
    with (copied_sources / source).open("a") as file:
        file.write("\n")
    assert sources_hash() != before


def test_cmake_computes_the_same_hash(copied_sources: Path, tmp_path: Path) -> None:
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if cmake is None:
        pytest.skip("no CMake")
    lists = (copied_sources / "CMakeLists.txt").read_text(encoding="utf-8")
    hashing = lists[lists.index("# The hash") : lists.index("add_subdirectory(kernels)")]
    (copied_sources / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(hash LANGUAGES NONE)\n" + hashing + "message(${sources_hash})\n"
    )
    for source in ("cpp/b.cc", "cpp/a/b.h", "cpp/a/B.hpp", "cpp/a-b/c.cmake", "cpp/a_b/d.in", "cpp/a/CMakeLists.txt"):
        (copied_sources / source).parent.mkdir(parents=True, exist_ok=True)
        (copied_sources / source).write_text(source)
    command = [cmake, "-S", copied_sources, "-B", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == sources_hash()


def test_no_library_is_one_message_that_says_how_to_get_it(no_library: Path) -> None:
    with pytest.raises(UserError, match="have not been built") as caught:
        find_library()
    assert "xformc kernels" in str(caught.value)


def test_the_cached_library_is_found(no_library: Path) -> None:
    fake_library(cached_path(), f"{__version__} {sources_hash()}")
    found = find_library()
    assert (found.path, found.instructions) == (cached_path(), "abacus, fingers")


def test_the_variable_goes_before_the_cache_whatever_its_sources(
    no_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine
) -> None:
    fake_library(cached_path(), f"{__version__} {sources_hash()}")
    other = fake_library(tmp_path / "other.so", f"{__version__} 0123456789ab")
    monkeypatch.setenv(VARIABLE, str(other))
    assert find_library().path == other
    assert f"0123456789ab, not those of this xformc ({sources_hash()})" in xformc("kernels", "--check").out


def test_the_library_of_a_wheel_goes_before_the_cache(
    no_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine
) -> None:
    fake_library(cached_path(), f"{__version__} {sources_hash()}")
    packaged = tmp_path / "xformc" / "lib" / f"libxformc{cached_path().suffix}"
    fake_library(packaged, f"{__version__} {sources_hash()}")
    assert find_library().path == packaged
    assert xformc("kernels").out == f"{packaged}\n"
    monkeypatch.setenv(VARIABLE, str(cached_path()))
    assert find_library().path == cached_path()


@pytest.mark.parametrize(
    ("version", "operators", "message"),
    [("0.0.1", OPERATORS, "belong to xformc 0.0.1"), (__version__, 0, "version 0 of xformc")],
)
def test_a_variable_that_names_a_library_of_another_version_is_a_mistake(
    no_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, operators: int, message: str
) -> None:
    other = fake_library(tmp_path / "other.so", f"{version} 0123456789ab", operators=operators)
    monkeypatch.setenv(VARIABLE, str(other))
    with pytest.raises(UserError, match=message) as caught:
        find_library()
    assert f"unset {VARIABLE}" in str(caught.value)


def test_auto_is_native_where_there_are_kernels(no_library: Path) -> None:
    fake_library(cached_path(), f"{__version__} {sources_hash()}")
    assert choose_target("auto") == ("native", None)


def test_auto_is_cpu_without_kernels_and_says_what_to_do(no_library: Path) -> None:
    needs = "target cpu; the faster native needs kernels"
    missing = f"{needs}: {cached_path()}: the kernels of xformc {__version__} have not been built; {BUILD}"
    assert choose_target("auto") == ("cpu", missing)


def test_auto_is_cpu_if_the_kernels_cannot_be_used(
    no_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, instructions, problem in (
        ("0.0.1", "abacus", f"these kernels belong to xformc 0.0.1; this is xformc {__version__}; {BUILD} and unset"),
        (__version__, "error: no fingers", "the kernels cannot run: no fingers"),
    ):
        path = fake_library(tmp_path / f"{version}.so", f"{version} 0123456789ab", instructions)
        monkeypatch.setenv(VARIABLE, str(path))
        target, reason = choose_target("auto")
        assert target == "cpu" and f"{path}: {problem}" in str(reason) and "\n" not in str(reason)


@pytest.mark.parametrize("target", get_args(Target))
def test_a_target_by_name_is_taken_with_or_without_kernels(no_library: Path, target: Target) -> None:
    assert choose_target(target) == (target, None)


def test_the_page_defines_the_operators_of_this_version() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
    assert f"operators of the domain `xformc`, version {OPERATORS}." in page


def test_a_variable_that_names_no_library_is_a_mistake(
    no_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.so"
    monkeypatch.setenv(VARIABLE, str(text))
    with pytest.raises(UserError, match="no such file"):
        find_library()
    text.write_text("not a library")
    with pytest.raises(UserError, match="not a library of xformc's kernels"):
        find_library()


def test_a_library_of_another_version_is_refused(tmp_path: Path) -> None:
    old = fake_library(tmp_path / "old.so", "0.0.1 0123456789ab")
    with pytest.raises(UserError, match=f"belong to xformc 0.0.1; this is xformc {__version__}"):
        open_library(old)


def test_a_library_that_cannot_run_here_is_refused(tmp_path: Path) -> None:
    other = fake_library(tmp_path / "other.so", f"{__version__} {sources_hash()}", "error: no fingers")
    with pytest.raises(UserError, match="the kernels cannot run: no fingers"):
        open_library(other)


def test_loading_runs_no_code_that_is_compiled_for_some_machines() -> None:
    """Such code at load would end the process on the others before anything is chosen."""
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    names = subprocess.run(["nm", str(kernel_library())], capture_output=True, text=True, check=True).stdout
    if "_GLOBAL__sub_I_" not in names:
        pytest.skip("the library has no names, or another compiler's")
    assert re.findall(r"_GLOBAL__sub_I_(?:gemm|attend)_\w+", names) == []


def test_the_instructions_are_those_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    path = kernel_library()
    monkeypatch.setenv("XFORMC_KERNELS_ISA", "portable")
    assert open_library(path).instructions == "those that every machine of this kind has"
    monkeypatch.setenv("XFORMC_KERNELS_ISA", "abacus")
    with pytest.raises(UserError, match="XFORMC_KERNELS_ISA must be"):
        open_library(path)


def test_a_native_engine_without_kernels_is_one_message(
    no_library: Path, native_engine: Path, xformc: CommandLine
) -> None:
    message = mistake(xformc("translate", native_engine, stdin="hello world\n"))
    assert "this engine was built for target native and needs xformc's kernels" in message
    assert "`xformc kernels`, or rebuild the engine with `xformc build --target cpu`" in message


def test_skipping_for_want_of_kernels_is_said_at_the_end_of_the_tests(no_library: Path) -> None:
    test = f"{__file__}::{test_a_native_engine_runs_with_the_kernels.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    found = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert "kernels: NOT BUILT, 1 tests of target native skipped: the kernels of xformc" in found.stdout
    assert "run `make kernels`" in found.stdout


def test_kernels_check_says_why_there_are_none(no_library: Path, xformc: CommandLine) -> None:
    assert "have not been built" in mistake(xformc("kernels", "--check"))


@pytest.mark.parametrize(
    ("installed", "needed"), [((), "cmake"), (("cmake",), "make or ninja")], ids=["cmake", "make or ninja"]
)
def test_kernels_without_tools_says_how_to_get_them(
    no_library: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine, installed: Sequence[str], needed: str
) -> None:
    def which(name: str, path: str | None = None) -> str | None:
        return name if name in installed else None

    monkeypatch.setattr("xformc.runtime.kernel_build.shutil.which", which)
    message = mistake(xformc("kernels"))
    assert f"building the kernels needs {needed}, which is not installed" in message
    assert "apt install g++ cmake" in message and "pip install cmake ninja" in message


@pytest.mark.usefixtures("tools")
def test_kernels_knows_that_they_cannot_be_kept_before_it_compiles(no_library: Path, xformc: CommandLine) -> None:
    no_library.write_text("a file, not a folder")
    message = mistake(xformc("kernels"))
    assert "the library of kernels cannot be written here" in message
    assert "set XDG_CACHE_HOME" in message


@pytest.mark.usefixtures("tools")
def test_kernels_shows_what_the_compiler_said(no_library: Path, copied_sources: Path, xformc: CommandLine) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    (copied_sources / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(xformc LANGUAGES CXX)\nadd_library(xformc SHARED wrong.cc)\n"
    )
    (copied_sources / "wrong.cc").write_text("#error a mistake of the source\n")
    message = mistake(xformc("kernels"))
    assert "could not be built" in message and "#error a mistake of the source" in message
    assert not list(no_library.rglob("libxformc*"))


def test_a_native_engine_runs_with_the_kernels(native_engine: Path) -> None:
    kernel_library()
    [[best]] = load(native_engine, threads=1).translate(["hello world"])
    assert best.text == "hello world"


def test_an_engine_that_needs_other_operators_is_one_message(
    native_engine: Path, no_library: Path, xformc: CommandLine
) -> None:
    version = OPERATORS + 1
    change_manifest(native_engine, {"operators": version})
    message = mistake(xformc("translate", native_engine, stdin="hello world\n"))
    needs = f"this engine needs version {version} of xformc's operators; this xformc has version {OPERATORS}"
    assert message.startswith(f"{native_engine / 'engine.json'}: {needs}\nhint: rebuild the engine with `xformc build`")
    assert f"target       native, operators {version}, float32" in xformc("inspect", native_engine).out


def test_an_engine_of_another_target_does_without_the_kernels(
    no_library: Path, native_engine: Path, copy_engine: Path
) -> None:
    assert load(copy_engine, threads=1).translate(["hello world"])[0][0].text == "hello world"
    change_manifest(native_engine, {"target": "cpu"})
    with pytest.raises(UserError, match="cannot be loaded"):
        load(native_engine)
