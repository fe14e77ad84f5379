"""Decoding speed beside CTranslate2's, on the same weights, threads and beam, alternating in one process.

    python benchmarks/decode.py [--spec transformer_base] [--length 30] [--rounds 7] [--target cpu]

Weights are fresh, so every sentence runs to its limit and both engines do the same work: sources of 25 random tokens,
targets of `--length`. Prints the median time of each, the ratio of the medians, and how many sentences came out equal.
"""

import argparse
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import ctranslate2
import numpy as np
import onnxruntime
from ctranslate2_model import SPECIAL, export

from xformc.compiler.backends.initializers import Initializers, save_model
from xformc.compiler.backends.models import engine_model
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.passes.step import with_beam
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.runtime.search import SEARCH, search
from xformc.runtime.session import Session

BATCHES = (1, 8, 32)
SOURCE_TOKENS = 25
SPECS = Path(__file__).parent.parent / "specs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", default="transformer_base")
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--target", choices=("portable", "cpu"), default="cpu")
    arguments = parser.parse_args()
    spec = load_spec(SPECS / f"{arguments.spec}.yaml")
    compiled = compile_engine(spec)
    weights = {name: value.numpy() for name, value in TorchModule(compiled.graph).state_dict().items()}
    options = replace(compiled.options, beam_width=arguments.beam)
    options = replace(options, max_length_factor=0.0, max_length_offset=arguments.length)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        initializers = Initializers(weights)
        model = engine_model(with_beam(compiled.decoder), initializers, options, None, target=arguments.target)
        save_model(model, initializers, folder)
        export(spec, weights, folder / "ctranslate2")
        ours = Session(folder, arguments.threads, SEARCH)
        theirs = ctranslate2.Translator(
            str(folder / "ctranslate2"), inter_threads=1, intra_threads=arguments.threads, compute_type="float32"
        )
        print(
            f"{spec.name}, float32, beam {arguments.beam}, {arguments.length} tokens out, {arguments.threads} threads; "
            f"onnxruntime {onnxruntime.__version__} ({arguments.target}), ctranslate2 {ctranslate2.__version__}, "
            f"{platform.machine()}"
        )
        print(f"{'batch':>5} {'xformc ms':>10} {'ctranslate2 ms':>15} {'ratio':>6} {'equal':>9}")
        for batch in BATCHES:
            compare(ours, theirs, options, spec.inputs["source"].vocabulary, batch, arguments)


def compare(ours, theirs, options, vocabulary: int, batch: int, arguments) -> None:
    """Time both on one batch in alternation and print a row."""
    random = np.random.default_rng(batch)
    source = random.integers(4, vocabulary, (batch, SOURCE_TOKENS))
    source[:, -1] = 3
    names = [[SPECIAL[3] if token == 3 else f"t{token}" for token in row] for row in source.tolist()]
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(arguments.rounds + 1):
        began = time.perf_counter()
        found = search(ours, source, options)
        middle = time.perf_counter()
        other = theirs.translate_batch(
            names,
            beam_size=arguments.beam,
            length_penalty=options.length_penalty,
            max_decoding_length=arguments.length,
            max_batch_size=batch,
        )
        times["ours"].append(middle - began)
        times["theirs"].append(time.perf_counter() - middle)
    mine, peer = (statistics.median(values[1:]) * 1000 for values in times.values())
    equal = sum(
        [f"t{token}" for token in found.tokens[row, 0, : found.lengths[row, 0]] if token != 3]
        == other[row].hypotheses[0]
        for row in range(batch)
    )
    print(f"{batch:5} {mine:10.1f} {peer:15.1f} {peer / mine:6.2f} {equal:4} of {batch:2}", flush=True)


if __name__ == "__main__":
    main()
