"""Engines that are meant to end the process that loads them are errors in libxformc."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native.hostile_files import HOSTILE_MANIFESTS, HOSTILE_SOUNDS, HOSTILE_TOKENIZERS, tokenizer
from tiny_engine import DEFAULTS, make_engine, text_input, write_manifest

from tests.conformance.engines import FOLDER
from xformc.errors import UserError
from xformc.runtime import load as load_in_python
from xformc.runtime.library import find_library
from xformc.runtime.libxformc import onnx_library

RUN = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
engine, error = ctypes.c_void_p(), ctypes.c_void_p()
status = library.xformc_load(sys.argv[2].encode(), None, ctypes.byref(engine), ctypes.byref(error))
library.xformc_error_message.restype = ctypes.c_char_p
print(status, library.xformc_error_message(error).decode())
if status == 0:
    text = b"oooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooo one"
    class Text(ctypes.Structure):
        _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]
    count = ctypes.c_size_t()
    encode = library.xformc_encode
    encode.argtypes = [ctypes.c_void_p, ctypes.c_char_p, Text, *[ctypes.c_void_p] * 4]
    print(encode(engine, b"source", Text(text, len(text)), None, None, ctypes.byref(count), None), count.value)
"""
SOUND = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
engine, error, results = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert library.xformc_load(sys.argv[2].encode(), None, ctypes.byref(engine), None) == 0
library.xformc_error_message.restype = ctypes.c_char_p
class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]
path = sys.argv[3].encode()
status = library.xformc_predict(
    engine, ctypes.byref(Text(path, len(path))), ctypes.c_size_t(1), None, ctypes.byref(results), ctypes.byref(error)
)
print(status, library.xformc_error_message(error).decode())
"""
INVALID_ARGUMENT, INVALID_ENGINE = 1, 2


@pytest.fixture
def library() -> Path:
    try:
        return find_library().path
    except UserError as error:
        pytest.skip(f"there is no libxformc: {error}")


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_hostile_manifest_is_an_error(name: str, library: Path, tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_bytes(HOSTILE_MANIFESTS[name])
    assert load(library, tmp_path).startswith(f"{INVALID_ENGINE} not JSON of an engine: more than")


@pytest.mark.parametrize("name", HOSTILE_TOKENIZERS)
def test_hostile_tokenizer_is_an_error(name: str, library: Path, tmp_path: Path) -> None:
    answer = load(library, tokenizer_engine(tmp_path / "engine", HOSTILE_TOKENIZERS[name]))
    assert answer.startswith(f"{INVALID_ENGINE} ")
    assert "SentencePiece" in answer


def test_unusual_tokenizer_is_none(library: Path, tmp_path: Path) -> None:
    """64 symbols of which each begins the next are what SentencePiece can hold."""
    model = tokenizer(tuple("o" * size for size in range(2, 66)))
    assert load(library, tokenizer_engine(tmp_path / "engine", model)) == "0 \n0 7\n"


@pytest.mark.parametrize("number", [26.90692102056307, 1e-05, 3.0, 7, -0.0, 1e-300])
def test_checksum_of_a_number_is_that_of_python(number: float, library: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine")
    rewrite(engine, defaults={**DEFAULTS, "max_length_factor": number})
    assert load(library, engine).startswith("0 ")


def test_a_kind_of_result_that_is_not_known_is_refused_by_both(library: Path, tmp_path: Path) -> None:
    engine = Path(shutil.copytree(FOLDER / "heads", tmp_path / "engine"))
    results = json.loads((engine / "engine.json").read_text())["results"]
    rewrite(engine, results={**results, "total": {**results["total"], "kind": "smells"}})
    message = "this engine has a result of kind smells; this {} knows text, "
    assert load(library, engine).startswith(f"{INVALID_ENGINE} {message.format('libxformc')}ctc, labels, numbers")
    with pytest.raises(UserError, match=message.format("runtime")) as caught:
        load_in_python(engine)
    assert caught.value.place == str(engine / "engine.json")


@pytest.mark.parametrize("name", HOSTILE_SOUNDS)
def test_hostile_sound_is_an_error(name: str, library: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.wav"
    path.write_bytes(HOSTILE_SOUNDS[name])
    assert run(SOUND, library, FOLDER / "sounds", path).startswith(f"{INVALID_ARGUMENT} not a .wav file that can be")
    with load_in_python(FOLDER / "sounds") as engine, pytest.raises(UserError, match=r"not a .wav file that can be"):
        engine.predict([path])


def load(library: Path, engine: Path) -> str:
    """Load an engine and encode a text in a process of its own, whose output is returned."""
    return run(RUN, library, engine)


def run(program: str, *arguments: Path) -> str:
    """Run a program in a process of its own, whose output is returned."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "XFORMC_ONNXRUNTIME": str(onnx_library())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"{done.returncode} {done.stderr}"
    return done.stdout


def tokenizer_engine(folder: Path, model: bytes) -> Path:
    """Write the engine that copies, with this tokenizer."""
    engine = make_engine(folder)
    (engine / "tokenizer.model").write_bytes(model)
    rewrite(engine, inputs={"source": text_input(500), "target": text_input(500)})
    return engine


def rewrite(engine: Path, **changed: object) -> None:
    """Write engine.json again with these fields, and the records of the files as they are now."""
    fields = json.loads((engine / "engine.json").read_text())
    for name in ("checksum", "files"):
        del fields[name]
    write_manifest(engine, {**fields, **changed})
