"""The memory that a language model takes for a long context, beside the sum of its weights and caches.

    python -m benchmarks.context                             # GPT-2 small, a context of 4,096 tokens
    python -m benchmarks.context --precisions int8 --caches auto int8 --lengths 512 4096

A new process loads the engine, which has random weights, and continues one prompt that leaves room for 16 more tokens.
`taken` is the peak of its resident memory less that before the engine was loaded, with ONNX Runtime and numpy imported.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"], choices=["float32", "int8", "int4"])
    parser.add_argument("--caches", nargs="*", default=["auto"], choices=["auto", "int8"])
    parser.add_argument("--lengths", nargs="*", type=int, default=[512, 4096])
    arguments = parser.parse_args()
    print(f"{'':34}{'weights':>10}{'caches':>10}{'taken':>10}  of the sum")
    for precision in arguments.precisions:
        for caches in arguments.caches:
            with tempfile.TemporaryDirectory() as name:
                measure(precision, caches, Path(name), arguments.lengths)


def measure(precision: Precision, caches: Caches, folder: Path, lengths: list[int]) -> None:
    """Measure one precision of weights and of caches, and print its rows."""
    (folder / "generator.yaml").write_text(GPT, encoding="utf-8")
    spec = load_spec(folder / "generator.yaml")
    write_engine(spec, fresh_weights(spec, "native"), precision, "native", folder / "engine", caches)
    weights = bytes_on_disk(folder / "engine")
    for length in lengths:
        prompt = np.random.default_rng(0).integers(4, int(spec.sizes["vocabulary"]), length - ROOM)
        child = Child("footprint", {})
        found = child.ask(do="generator", folder=str(folder / "engine"), prompt=prompt.tolist(), tokens=ROOM)
        child.close()
        kept, taken = length * bytes_of_position(spec, precision, caches), found["peak"] - found["before"]
        shown = "".join(f"{each / 1e6:7.1f} MB" for each in (weights, kept, taken))
        name = f"{precision}{', caches int8' * (caches == 'int8')}, {length:,} tokens"
        print(f"{name:34}{shown}{taken / (weights + kept):8.3f}", flush=True)


def bytes_of_position(spec: Spec, precision: Precision, caches: Caches) -> int:
    """The bytes of all caches for one position of one text."""
    program = compile_engine(spec, "native", spec.precisions(precision))
    decoder = run_passes(replace(program, caches=caches)).decoder
    assert decoder is not None and decoder.resident is not None
    types: list[Any] = [value.type for value in decoder.resident.caches]
    return sum(np.dtype(each.dtype).itemsize * prod(axis.size or 1 for axis in each.axes) for each in types)


if __name__ == "__main__":
    main()
