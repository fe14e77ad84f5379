"""What the controls of the search cost a call that does not use them, and one that does, on a native engine.

    python -m benchmarks.controls ENGINE test.en [--batches 1 32] [--rounds 15]

`without` is the same model, from whose operators the inputs of the controls were removed. In each round it, the engine
(`unused`) and the engine with each control take turns in one process. Times are medians of the rounds; the ratios are
those of the medians, with the lowest and highest of the rounds.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from xformc.compiler.backends.onnx.graphs import inner_graphs, set_nodes, used
from xformc.compiler.backends.onnx.sequences import join, split
from xformc.errors import UserError
from xformc.format.interfaces import PREFIX, interface
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.names import MODEL
from xformc.format.reader import read_manifest
from xformc.format.search_options import CONTROLS, SHAPES
from xformc.runtime.constraints.automaton import Automaton, matching_of
from xformc.runtime.options import arrays
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import search
from xformc.runtime.session import Session
from xformc.runtime.text.lines import read_text_file
from xformc.runtime.text.tokenizer import load_tokenizer
from xformc.runtime.whole import whole_session

OPTIONAL = {"Candidates": 3, "ProjectCandidates": 6, "ScreenCandidates": 8, "Advance": 15}
"""The place of the first input of each operator that is there for a control."""

Play = Callable[[NDArray[np.int64]], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 32])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    manifest = read_manifest(arguments.engine)
    if manifest.target != "native" or PREFIX not in manifest.controls or manifest.search.min_length is None:
        raise UserError("is no native engine with controls", place=str(arguments.engine))
    sources = _sources(arguments.engine, manifest, arguments.source, max(arguments.batches))
    print(f"{manifest.name}, {manifest.precision}, beam {manifest.search.beam_size}, ms of a call")
    with tempfile.TemporaryDirectory() as folder:
        players = _players(arguments.engine, manifest, Path(folder))
        for batch in arguments.batches:
            seconds = _take_turns(players, sources, batch, arguments.rounds)
            print(f"batch {batch}: {statistics.median(seconds['without']) * 1000:.2f} ms without")
            for name in list(players)[1:]:
                print(f"{name:>24}{_cell(seconds, name)}", flush=True)


def _sources(engine: Path, manifest: Manifest, file: Path, count: int) -> list[NDArray[np.int64]]:
    tokenizer = load_tokenizer(engine, manifest)
    (given,) = manifest.given
    if tokenizer is None:
        raise UserError("has no tokenizer", place=str(engine))
    return [np.array(tokenizer.encode(given, line), np.int64) for line in read_text_file(file)[: count * 4] if line]


def _players(engine: Path, manifest: Manifest, folder: Path) -> dict[str, Play]:
    face = interface(manifest.inputs, manifest.results, manifest.decoding)
    open_model = partial(whole_session, interface=face, threads=1, target=manifest.target)
    for path in engine.iterdir():
        if path.name != MODEL:
            shutil.copyfile(path, folder / path.name)
    (folder / MODEL).write_bytes(without_controls(engine / MODEL).SerializeToString())
    whole, plain = open_model(engine), open_model(folder)
    (given,) = manifest.given
    options, written = manifest.search, manifest.inputs[manifest.written]
    used, begun = _options(manifest), np.array([5], np.int64)

    def play(session: Session, source: NDArray[np.int64], **more: Any) -> Any:
        return search(session, {given: source}, more.pop("options", options), **more)

    def of_each(source: NDArray[np.int64]) -> Any:
        values = arrays(replace(options, length_penalty=0.7))
        rows = {name: np.stack([value] * len(source)) for name, value in values.items() if name not in SHAPES}
        return play(whole, source, each=rows)

    matching = matching_of(Automaton(np.zeros((1, written.pieces), np.int32), np.array([True])), written)
    return {
        "without": partial(play, plain, options=replace(options, **dict.fromkeys(CONTROLS))),
        "unused": partial(play, whole),
        **{name: partial(play, whole, options=one) for name, one in used.items()},
        "prefix": lambda source: play(whole, source, prefixes=[begun] * len(source)),
        "phrases": lambda source: play(whole, source, phrases=[np.array([[5, 6]])] * len(source)),
        "automaton": partial(play, whole, automaton=matching.arrays([{}]), room=matching.room),
        "options of each text": of_each,
    }


def _options(manifest: Manifest) -> dict[str, SearchOptions]:
    """The search with each option in use."""
    one: dict[str, Any] = {
        "min_length": 5,
        "suppress_tokens": (5, 6),
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
    }
    groups = {"beam_groups": 2, "diversity_penalty": 0.5}
    found = {name: replace(manifest.search, **{name: value}) for name, value in one.items()}
    return {**found, "beam_groups": replace(manifest.search, **groups)} if manifest.search.beam_size % 2 == 0 else found


def without_controls(model: Path) -> onnx.ModelProto:
    """The model, whose operators lack the inputs of the controls; its weights stay in their file."""
    loaded = onnx.load(model, load_external_data=False)
    split(loaded.graph)
    _strip(loaded.graph)
    join(loaded.graph)
    return loaded


def _strip(graph: onnx.GraphProto) -> None:
    """Strip a graph, and those inside it."""
    for node in graph.node:
        if node.op_type in OPTIONAL:
            del node.input[OPTIONAL[node.op_type] :]
        for inner in inner_graphs(node):
            _strip(inner)
    set_nodes(graph, used(graph.node, [value.name for value in graph.output]))


def _take_turns(
    players: dict[str, Play], sources: Sequence[NDArray[np.int64]], batch: int, rounds: int
) -> dict[str, list[float]]:
    """The seconds of a call, the mean over four batches, in each round; the first round is not counted."""
    batches = [pad(sources[first : first + batch]) for first in range(0, 4 * batch, batch)]
    seconds: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(rounds + 1):
        for name, play in players.items():
            began = time.perf_counter()
            for one in batches:
                play(one)
            seconds[name].append((time.perf_counter() - began) / len(batches))
    return {name: found[1:] for name, found in seconds.items()}


def _cell(seconds: dict[str, list[float]], name: str) -> str:
    ratios = [one / plain for one, plain in zip(seconds[name], seconds["without"], strict=True)]
    ratio = statistics.median(seconds[name]) / statistics.median(seconds["without"])
    return f"{ratio:10.3f} ({min(ratios):.3f} to {max(ratios):.3f})".rjust(28)


if __name__ == "__main__":
    main()
