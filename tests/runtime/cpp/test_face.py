"""xformc.hpp and the examples compile without warnings, and do what they say."""

from pathlib import Path

import pytest
from tiny_engine import SENTENCES

from tests.conformance.engines import FOLDER, SOUND_FILES
from tests.runtime.cpp.compiled import CPP, compile_program, compiler, run

HERE = Path(__file__).parent
EXAMPLES = CPP / "examples"


@pytest.fixture
def engines(copy_engine: Path, endless_engine: Path, language_model: Path, pairs: Path, images: Path) -> list[Path]:
    return [
        copy_engine,
        endless_engine,
        language_model,
        pairs,
        images,
        *(FOLDER / name for name in ("heads", "caption", "join", "draw", "sounds")),
        SOUND_FILES / "eight.wav",
        *(FOLDER / name for name in ("judged", "tales", "aligned")),
    ]


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_face_does_what_it_says(standard: str, engines: list[Path], tmp_path: Path) -> None:
    program = compile_program(tmp_path / "face", HERE / "face.cc", standard=standard)
    result = run(program, *engines)
    assert (result.code, result.err) == (0, "")


def test_another_compiler_takes_the_face(tmp_path: Path) -> None:
    compiler("clang++")
    compile_program(tmp_path / "face", HERE / "face.cc", standard="c++20", compilers=("clang", "clang++"))


def test_the_c_example_translates_its_arguments(copy_engine: Path, tmp_path: Path) -> None:
    program = compile_program(tmp_path / "translate", EXAMPLES / "translate.c", standard="c11")
    result = run(program, copy_engine, *SENTENCES)
    assert [line.partition("\t")[0] for line in result.out.splitlines()] == SENTENCES
    assert run(program, copy_engine).out == ""
    assert run(program).code == 2
    missing = run(program, tmp_path / "none", "one")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith(f"error: {tmp_path / 'none'}: no such folder\nhint: ")


def test_a_program_of_an_older_header_runs(copy_engine: Path, tmp_path: Path) -> None:
    program = compile_program(tmp_path / "older", HERE / "older.c", standard="c11")
    result = run(program, copy_engine, FOLDER / "tales")
    assert (result.code, result.err) == (0, "")


def test_the_cpp_example_translates_lines(copy_engine: Path, tmp_path: Path) -> None:
    program = compile_program(tmp_path / "translate", EXAMPLES / "translate.cc")
    lines = "".join(f"{line}\n" for line in SENTENCES)
    assert run(program, copy_engine, stdin=lines).out == lines
    broken = run(program, copy_engine, stdin=b"one\n\xff\n")
    assert (broken.code, broken.out, broken.err) == (2, "one\n", "error: line 2: not valid Unicode text\n")
