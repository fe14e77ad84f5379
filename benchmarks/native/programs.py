"""Compiles the C++ programs of this folder, and runs them."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ctranslate2  # pyright: ignore[reportMissingImports]  # of the extra bench

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Places:
    """Where the programs find what they are compiled with.

    headers: the folder with ctranslate2/translator.h, of the same version as the Python package ctranslate2.
    build: the folder in which CMake built libxformc and SentencePiece.
    """

    headers: Path
    build: Path


def compile_programs(places: Places, folder: Path) -> dict[str, Path]:
    """Compile the programs into `folder`; return their files by name. Raises: SystemExit if something is missing."""
    wheel = Path(ctranslate2.__file__ or "").parent.parent / "ctranslate2.libs"
    processor = only(places.build / "third_party", "**/src/sentencepiece_processor.h")
    library = only(wheel, "libctranslate2*")
    pieces = places.build / "third_party" / "build" / "src" / "libsentencepiece.a"
    # CTranslate2's own libraries are found by an RPATH: a RUNPATH would not count for them.
    rpath = "-Wl,--disable-new-dtags,-rpath,"
    peer = (f"-I{places.headers}", f"-I{processor.parent}", str(pieces), str(library), f"{rpath}{wheel}", "-lpthread")
    ours = (f"-I{HERE.parents[1] / 'runtime/cpp/include'}", str(places.build / "libxformc.so"))
    options = {"bare": (), "ctranslate2": peer, "xformc": (*ours, f"{rpath}{places.build.resolve()}")}
    for name, given in options.items():
        command = ["g++", "-std=c++17", "-O2", str(HERE / f"{name}.cc"), *given, "-o", str(folder / name)]
        subprocess.run(command, check=True)
    return {name: folder / name for name in options}


def only(folder: Path, pattern: str) -> Path:
    """Return the one file below the folder that fits the pattern. Raises: SystemExit if there is none."""
    found = [*folder.glob(pattern)]
    if len(found) != 1:
        raise SystemExit(f"error: {len(found)} files {pattern} in {folder}, not one")
    return found[0]


class Program:
    """A running program. `seconds` and `processor` are the times from its start to the first translated line."""

    def __init__(self, file: Path, options: Mapping[str, object], variables: Mapping[str, str]) -> None:
        command = [str(file), *(f"{name}={value}" for name, value in options.items())]
        environment = {**os.environ, **variables}
        began = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.processor = float(self._answer())
        self.seconds = time.perf_counter() - began

    def translate(self, lines: int) -> tuple[float, float, list[str]]:
        """Translate the first lines of the text; return seconds, seconds of processor time, and the translations."""
        assert self._process.stdin is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
            self._process.stdin.write(f"{lines} {output.name}\n")
            self._process.stdin.flush()
            seconds, processor = map(float, self._answer().split())
            return seconds, processor, output.read().splitlines()

    def peak(self) -> float:
        """Return the peak resident memory so far in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024 / 1e6

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"error: {self._process.args} exited with code {self._process.wait()}")
        return answer
