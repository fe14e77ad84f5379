"""The programs of the page about C and C++ run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from tests.conformance.engines import FOLDER
from tests.runtime.cpp.compiled import CPP, compile_program, environment, run
from tests.runtime.kernel_session import kernel_library

PAGE = (Path(__file__).parents[3] / "docs" / "cpp.md").read_text(encoding="utf-8")
HEADERS = ("chrono", "iostream", "string", "thread", "vector", "xformc.hpp")
KOFFI = "koffi"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_of_the_page_runs(copy_engine: Path, tmp_path: Path) -> None:
    [program] = [block for block in blocks("cpp") if "int main" in block]
    (tmp_path / "demo.cc").write_text(program)
    result = run(compile_program(tmp_path / "demo", tmp_path / "demo.cc", standard="c++20"), copy_engine)
    assert (result.code, result.err) == (0, "")
    first, second, *rest = result.out.splitlines()
    assert first.startswith("forty-two\t-") and second.startswith("forty-two\t-")
    assert rest[2:5] == ["nine", "forty-two", "copy: translation, 80 tokens"]
    missing = run(tmp_path / "demo", tmp_path / "none")
    assert (missing.code, missing.err.partition(":")[0]) == (2, "error")


def test_each_snippet_of_the_page_runs(copy_engine: Path, language_model: Path, pairs: Path, tmp_path: Path) -> None:
    snippets = [block for block in blocks("cpp") if "int main" not in block]
    assert len(snippets) == 7
    functions = [f"void run_{i}(const xformc::Engine& engine) {{\n{text}}}\n" for i, text in enumerate(snippets)]
    calls = [f"  run_{i}(xformc::Engine(words[{engine_of(text)}]));\n" for i, text in enumerate(snippets)]
    lines = [*(f"#include <{header}>\n" for header in HEADERS), *functions, "int main(int, char** words) {\n", *calls]
    (tmp_path / "snippets.cc").write_text("".join([*lines, "}\n"]))
    program = compile_program(tmp_path / "snippets", tmp_path / "snippets.cc", standard="c++20")
    result = run(program, copy_engine, language_model, pairs, FOLDER / "caption", stdin="two dogs\none\n")
    assert (result.code, result.err) == (0, "")
    assert "Once upon a time" in result.out and ": 3 of 3\n" in result.out
    assert result.out.endswith("two dogs\none\n")


def engine_of(snippet: str) -> int:
    return (
        4
        if ".transcribe" in snippet
        else 2
        if ".generate" in snippet or ".stream_tokens" in snippet
        else 3
        if ".predict" in snippet
        else 1
    )


def test_the_project_of_the_page_is_built(copy_engine: Path, tmp_path: Path) -> None:
    own = str(Path(sys.executable).parent)
    cmake = shutil.which("cmake") or shutil.which("cmake", path=own) or pytest.skip("no cmake")
    if not (shutil.which("make") and shutil.which("g++")):
        pytest.skip("no make or no g++")
    [project] = blocks("cmake")
    [program] = [block for block in blocks("cpp") if "int main" in block]
    (tmp_path / "CMakeLists.txt").write_text(project)
    (tmp_path / "demo.cc").write_text(program)
    package = f"""
        add_library(xformc::xformc SHARED IMPORTED)
        set_target_properties(xformc::xformc PROPERTIES IMPORTED_LOCATION "{kernel_library()}"
          IMPORTED_NO_SONAME TRUE INTERFACE_INCLUDE_DIRECTORIES "{CPP / "include"}")
    """
    (tmp_path / "xformcConfig.cmake").write_text(package)
    make = f"-DCMAKE_MAKE_PROGRAM={shutil.which('make')}"
    for command in (
        [cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-Dxformc_DIR={tmp_path}", "-G", "Unix Makefiles", make],
        [cmake, "--build", tmp_path / "build"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run(tmp_path / "build" / "demo", copy_engine).code == 0


def test_the_program_for_node_runs(copy_engine: Path, tmp_path: Path) -> None:
    node = shutil.which("node") or pytest.skip("no node")
    if subprocess.run([node, "-e", f"require('{KOFFI}')"], capture_output=True, check=False, cwd=tmp_path).returncode:
        pytest.skip("node has no koffi: npm install koffi, and name its folder node_modules in NODE_PATH")
    [program] = blocks("js")
    (tmp_path / "demo.js").write_text(program)
    result = run(node, tmp_path / "demo.js", kernel_library(), copy_engine)
    assert (result.code, result.out, result.err) == (0, "forty-two\nseven\n", "")
    assert "no such folder" in run(node, tmp_path / "demo.js", kernel_library(), tmp_path / "none").err


def test_the_commands_of_the_page_run(xformc_run: Path, xformc: CommandLine, tmp_path: Path) -> None:
    engine = FOLDER / "aligned"
    section = PAGE.partition("## xformc-run\n")[2].partition("\n## ")[0]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert len(commands) == 5
    (tmp_path / "in.txt").write_text("two dogs\n")
    outputs = [shell(line, xformc_run, engine, tmp_path) for line in commands]
    assert (tmp_path / "out.txt").read_text() == "two dogs\n"
    expected = xformc("translate", engine, "--beam-size", "8", "--n-best", "3", stdin="forty-two\n")
    assert outputs[:4] == ["", "", expected.out, ""] and outputs[4].startswith("Once upon a time")
    assert "0-" in (tmp_path / "links.txt").read_text()


def shell(line: str, program: Path, engine: Path, folder: Path) -> str:
    """The output of a line of the page, which succeeds."""
    words = (
        line.replace("xformc-run", str(program))
        .replace("ENGINE", str(engine))
        .replace("LANGUAGE_MODEL", str(FOLDER / "tales"))
    )
    done = subprocess.run(words, shell=True, capture_output=True, text=True, check=False, cwd=folder, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
