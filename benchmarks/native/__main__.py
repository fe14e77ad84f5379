"""Holds libxformc against CTranslate2's C++ library, each in a C++ program that translates text.

    python -m benchmarks.native RUN test.en --headers DIR --build build/libxformc [--rounds 5] [--json FILE]

RUN was trained with a spec that extends transformer_base and has one vocabulary for both sides. Both programs get the
same weights, precision, tokenizer and beam. DIR has the headers of the installed version of the package ctranslate2,
whose library the peer's program uses. Two measurements, in turns; a cell is the median of its rounds:

- start: seconds and processor time from the start of the process to the first translated line, and the peak memory
  then and after 32 lines, less that of a program that does nothing. Models of benchmarks.decode with randomly
  initialized weights, which write 30 tokens for each line, and the trained model. All threads work on one batch.
- text: the lines of the file per second, from text to text, with the trained model. Each program in its best setting,
  found on some lines: a batch on all threads or a batch on each, and the size of batches; CTranslate2 also with
  CT2_FORCE_CPU_ISA=AVX512. The seconds of processor time hardly depend on what else the machine does.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import onnxruntime

from benchmarks.decode.speed import SETTINGS, SETTLE
from benchmarks.native.models import Model, fresh_model, trained_model
from benchmarks.native.programs import Places, Program, compile_programs
from benchmarks.text import PEER_BATCH_TOKENS, USUAL_LENGTH
from xformc.format.precision import Precision

FRESH: tuple[tuple[str, Precision, int], ...] = (
    ("base", "int8", 4),
    ("base", "float32", 4),
    ("base", "int8", 1),
    ("big", "int8", 4),
    ("small256", "float32", 4),
    ("small256", "int8", 4),
    ("small128", "float32", 4),
    ("small128", "int8", 4),
)
"""The models with randomly initialized weights: name, precision and beam."""

FRESH_LENGTH = 30
TRIED_LINES = 300
BATCH_LINES = 32
OWN_BATCH_TOKENS = (4096, 16_384, 32_768)

Options = dict[str, object]


@dataclass(frozen=True)
class Setting:
    """A program, batches at once, the capacity of each in the program's own measure, and environment variables."""

    program: str
    workers: int
    batch_tokens: int
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def player(self) -> str:
        """The program with its variables."""
        return " ".join([self.program, *self.variables.values()])

    def __str__(self) -> str:
        return f"{self.player}, {self.workers} workers, batches of {self.batch_tokens} tokens"


LATENCY = (
    Setting("xformc", 1, OWN_BATCH_TOKENS[1]),
    *(Setting("ctranslate2", 1, PEER_BATCH_TOKENS[1], variables) for variables in SETTINGS.values()),
)
"""The settings in which a program starts."""


class Contest:
    """The compiled programs and what they all get."""

    def __init__(self, places: Places, text: Path, threads: int, rounds: int, folder: Path) -> None:
        self._programs = compile_programs(places, folder)
        self._text, self._threads, self._rounds = text, threads, rounds
        capi = Path(onnxruntime.__file__).parent / "capi"
        self._onnxruntime = min(capi.glob("libonnxruntime.so*"))

    def start(self, model: Model, beam: int, length: int | None) -> dict[str, Any]:
        """Return seconds and memory of each program, in turns."""
        found: dict[str, list[tuple[float, ...]]] = {}
        for _ in range(self._rounds):
            bare = Program(self._programs["bare"], {}, {})
            below = bare.peak()
            bare.close()
            for setting in LATENCY:
                program = self._run(setting, model, beam, length)
                first = program.peak() - below
                program.translate(BATCH_LINES)
                times, last = (program.seconds, program.processor), program.peak() - below
                found.setdefault(setting.player, []).append((*times, first, last))
                program.close()
        names = ("first_s", "processor_s", "first_mb", "batch_mb")
        return {
            key: dict(zip(names, map(summary, zip(*each, strict=True)), strict=True)) for key, each in found.items()
        }

    def text(self, model: Model, lines: int) -> dict[str, Any]:
        """Return seconds of each program in its best setting, in turns, and the translations that are equal."""
        players = {name: self._best(name, model, min(lines, TRIED_LINES)) for name in ("xformc", "ctranslate2")}
        times: dict[str, list[float]] = {name: [] for name in players}
        used: dict[str, list[float]] = {name: [] for name in players}
        texts = dict[str, list[str]]()
        for _ in range(self._rounds):
            for name, (_, program) in players.items():
                time.sleep(SETTLE)
                seconds, processor, texts[name] = program.translate(lines)
                times[name].append(seconds)
                used[name].append(processor)
        memory = {name: program.peak() for name, (_, program) in players.items()}
        for _, program in players.values():
            program.close()
        return {
            "lines": lines,
            "equal": sum(map(str.__eq__, texts["xformc"], texts["ctranslate2"])),
            "ratio": summary(ratios(times)),
            "processor_ratio": summary(ratios(used)),
            **{
                name: {
                    "per_second": summary([lines / seconds for seconds in each]),
                    "processor_s": summary(used[name]),
                    "mb": memory[name],
                    "setting": str(players[name][0]),
                }
                for name, each in times.items()
            },
        }

    def _best(self, name: str, model: Model, lines: int) -> tuple[Setting, Program]:
        """Return the setting in which a program translates these lines fastest, the better of two runs; and run it."""
        sizes, variables = (OWN_BATCH_TOKENS, [{}]) if name == "xformc" else (PEER_BATCH_TOKENS, SETTINGS.values())
        found: list[tuple[float, Setting]] = []
        for choice in product((name,), sorted({1, self._threads}), sizes, variables):
            program = self._run(Setting(*choice), model, model.search.beam_size, None)
            found.append((min(program.translate(lines)[0] for _ in range(2)), Setting(*choice)))
            program.close()
        _, best = min(found, key=lambda one: one[0])
        return best, self._run(best, model, model.search.beam_size, None)

    def _run(self, setting: Setting, model: Model, beam: int, length: int | None) -> Program:
        options: Options = {"text": self._text, "beam": beam, "length_penalty": model.search.length_penalty}
        options |= {"threads": self._threads, "workers": setting.workers, "batch_tokens": setting.batch_tokens}
        if setting.program == "xformc":
            factor, offset = model.search.max_length_factor, model.search.max_length_offset
            limit = (factor, offset) if length is None else (0.0, length)
            options |= {"model": model.engine, "onnxruntime": self._onnxruntime}
            options |= {"length_factor": limit[0], "length_offset": limit[1]}
        else:
            options |= {"model": model.peer, "tokenizer": model.tokenizer, "precision": model.precision}
            options |= {"length": USUAL_LENGTH if length is None else length}
        return Program(self._programs[setting.program], options, setting.variables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--headers", type=Path, required=True, help="CTranslate2's folder include")
    parser.add_argument("--build", type=Path, required=True, help="the folder in which CMake built runtime/")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("start", "text"))
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    os.environ["XFORMC_KERNELS"] = str(arguments.build / "libxformc.so")  # one build for all
    with tempfile.TemporaryDirectory() as folder:
        results = measure(arguments, Path(folder))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure and print all rows; return them."""
    places = Places(arguments.headers, arguments.build)
    contest = Contest(places, arguments.text, arguments.threads, arguments.rounds, folder)
    precisions: tuple[Precision, ...] = ("float32", "int8")
    trained = {precision: trained_model(arguments.run, precision, folder / precision) for precision in precisions}
    results: dict[str, Any] = {"start": {}, "text": {}}
    if arguments.only != "text":
        for precision, model in trained.items():
            row = f"trained, beam {model.search.beam_size}, {precision}"
            results["start"][row] = show_start(row, contest.start(model, model.search.beam_size, None))
        for name, precision, beam in FRESH:
            row = f"{name}, beam {beam}, {precision}"
            model = fresh_model(name, arguments.run / "tokenizer.model", precision, folder / row)
            results["start"][row] = show_start(row, contest.start(model, beam, FRESH_LENGTH))
    if arguments.only != "start":
        lines = len(arguments.text.read_text(encoding="utf-8").splitlines())
        for precision, model in trained.items():
            results["text"][precision] = show_text(precision, contest.text(model, lines))
    return results


def summary(values: Sequence[float]) -> dict[str, float]:
    """The median, the least and the greatest."""
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def ratios(found: Mapping[str, Sequence[float]]) -> list[float]:
    """CTranslate2's seconds divided by xformc's, for each round."""
    return [theirs / ours for ours, theirs in zip(found["xformc"], found["ctranslate2"], strict=True)]


def show(one: Mapping[str, float], digits: int) -> str:
    """A summary as text."""
    return f"{one['median']:.{digits}f} ({one['least']:.{digits}f} to {one['greatest']:.{digits}f})"


def show_start(row: str, found: dict[str, Any]) -> dict[str, Any]:
    """Print a row; return it."""
    print(row)
    for name, one in found.items():
        print(f"  {name:20} first {show(one['first_s'], 3)} s, processor {show(one['processor_s'], 3)} s,")
        print(
            f"  {'':20} memory {show(one['first_mb'], 0)} MB, {BATCH_LINES} lines {show(one['batch_mb'], 0)} MB",
            flush=True,
        )
    return found


def show_text(precision: str, found: dict[str, Any]) -> dict[str, Any]:
    """Print a row; return it."""
    print(f"{precision}: ratio {show(found['ratio'], 2)}, of processor time {show(found['processor_ratio'], 2)}")
    print(f"  {found['equal']} of {found['lines']} translations are equal")
    for name in ("xformc", "ctranslate2"):
        one = found[name]
        rate, processor = show(one["per_second"], 0), show(one["processor_s"], 2)
        print(f"  {name:12} {rate} lines/s, {processor} s of processor time")
        print(f"  {'':12} peak {one['mb']:.0f} MB, {one['setting']}", flush=True)
    return found


if __name__ == "__main__":
    main()
