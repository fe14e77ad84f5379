"""The memory that a language model takes for a long context, beside the sum of its weights and caches.

    python -m benchmarks.context                             # GPT-2 small, a context of 4,096 tokens
    python -m benchmarks.context --precisions int8 --caches auto int8 --lengths 512 4096

A new process loads the engine, which has random weights, and continues one prompt that leaves room for 16 more tokens.
`taken` is the peak of its resident memory less that before the engine was loaded, with ONNX Runtime and numpy imported.
`runtime` is what an engine of the smallest sizes takes so: the code and the tables of ONNX Runtime that any session
needs. The last columns are `taken` as a multiple of weights and caches, with and without `runtime`.
"""

import argparse
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.child import Child
from benchmarks.decode.engines import bytes_on_disk, fresh_weights, write_engine
from benchmarks.generation.models import GPT
from xformc.compiler.pipeline import compile_engine, run_passes
from xformc.compiler.spec import Spec, load_spec
from xformc.format.precision import Caches, Precision

ROOM = 16
"""The tokens that are written after the prompt."""

SMALLEST = """
extends: gpt
sizes: {layers: 1, d_model: 64, d_ff: 64, heads: 1, vocabulary: 64, max_positions: 64, dropout: 0.0}
train: {max_length: 64}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"], choices=["float32", "int8", "int4"])
    parser.add_argument("--caches", nargs="*", default=["auto"], choices=["auto", "int8"])
    parser.add_argument("--lengths", nargs="*", type=int, default=[512, 4096])
    arguments = parser.parse_args()
    print(f"{'':34}{'weights':>10}{'caches':>10}{'taken':>10}{'runtime':>10}{'whole':>9}{'without':>9}")
    for precision in arguments.precisions:
        for caches in arguments.caches:
            with tempfile.TemporaryDirectory() as name:
                measure(precision, caches, Path(name), arguments.lengths)


def measure(precision: Precision, caches: Caches, folder: Path, lengths: list[int]) -> None:
    """Measure one precision of weights and of caches, and print its rows."""
    _write(SMALLEST, precision, caches, folder / "smallest")
    spec = _write(GPT, precision, caches, folder / "engine")
    weights, runtime = bytes_on_disk(folder / "engine"), _taken(folder / "smallest", [5] * ROOM)
    for length in lengths:
        prompt = np.random.default_rng(0).integers(4, int(spec.sizes["vocabulary"]), length - ROOM)
        kept, taken = length * bytes_of_position(spec, precision, caches), _taken(folder / "engine", prompt.tolist())
        shown = "".join(f"{each / 1e6:7.1f} MB" for each in (weights, kept, taken, runtime))
        name = f"{precision}{', caches int8' * (caches == 'int8')}, {length:,} tokens"
        ratios = "".join(f"{each / (weights + kept):9.3f}" for each in (taken, taken - runtime))
        print(f"{name:34}{shown}{ratios}", flush=True)


def _write(text: str, precision: Precision, caches: Caches, engine: Path) -> Spec:
    path = engine.with_suffix(".yaml")
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path)
    write_engine(spec, fresh_weights(spec, "native"), precision, "native", engine, caches)
    return spec


def _taken(engine: Path, prompt: list[int]) -> int:
    """The bytes that a new process takes to load the engine and to continue the prompt."""
    child = Child("footprint", {})
    found = child.ask(do="generator", folder=str(engine), prompt=prompt, tokens=ROOM)
    child.close()
    return found["peak"] - found["before"]


def bytes_of_position(spec: Spec, precision: Precision, caches: Caches) -> int:
    """The bytes of all caches for one position of one text."""
    program = compile_engine(spec, "native", spec.precisions(precision))
    decoder = run_passes(replace(program, caches=caches)).decoder
    assert decoder is not None and decoder.resident is not None
    types: list[Any] = [value.type for value in decoder.resident.caches]
    return sum(np.dtype(each.dtype).itemsize * prod(axis.size or 1 for axis in each.axes) for each in types)


if __name__ == "__main__":
    main()
