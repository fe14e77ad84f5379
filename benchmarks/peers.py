"""The beam search of a T5 in xformc and in other systems: CTranslate2, ONNX Runtime, OpenVINO and transformers.

    python -m benchmarks.peers                                      # of these, what is installed; ten minutes
    python -m benchmarks.peers --openvino VENV/bin/python           # and OpenVINO, by the optimum-intel of VENV
    python -m benchmarks.peers --beside ctranslate2 onnxruntime --rounds 3

The model has the sizes of t5-small and random weights. transformers makes it, and every system converts that folder by
its own tools: `xformc import`, CTranslate2's TransformersConverter, ONNX Runtime's convert_generation, whose result is
one BeamSearch operator, and optimum-intel. All write `--length` tokens, so a length penalty changes no ranking.
CTranslate2 runs in its default setting and with CT2_FORCE_CPU_ISA=AVX512; the faster of these counts.

In each round all take turns, each in its own process, after two untimed tokens. Times are medians; a ratio is that of
the medians, with the lowest and highest of the rounds. `=` counts the sentences whose best hypothesis has the tokens of
xformc's. In int8 each system quantizes differently, and with random weights most hypotheses differ.

ONNX Runtime's scripts have no int8: its quantize_dynamic quantizes what they export. OpenVINO's is `load_in_8bit`,
which stores weights in int8. transformers computes in float32. A system that is not installed is left out, with a line.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.decode.child import Child
from benchmarks.decode.engines import limited, write_engine
from benchmarks.decode.speed import SETTINGS, WARM_UP, Hypotheses, Pace, ratio, sentences, take_turns
from benchmarks.generation.models import SPECIAL, write_tokenizer
from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.format.interfaces import SEARCH
from xformc.format.names import SPEC
from xformc.format.precision import Precision
from xformc.format.tokens import END, PAD, UNKNOWN
from xformc.imports.import_model import import_model
from xformc.runtime.searching.search import search
from xformc.runtime.whole import whole_session

SIZES = {"vocab_size": 32128, "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8, "num_layers": 6}
"""The sizes of t5-small, by transformers' names."""

Player = Callable[[int, int], tuple[float, Hypotheses]]
"""Searches outputs of so many tokens for a batch of so many sentences; returns the seconds and the best hypotheses."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"], choices=["float32", "int8"])
    parser.add_argument("--beside", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--openvino", metavar="PYTHON", help="the Python of an environment with optimum-intel")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if find_spec("transformers") is None:
        raise SystemExit("error: the model is made with transformers\nhint: pip install --group peers")
    systems = [name for name in arguments.beside if is_there(name, arguments.openvino)]
    with tempfile.TemporaryDirectory() as name:
        import_model(write_model(Path(name) / "model"), Path(name) / "run")
        for precision in arguments.precisions:
            with ExitStack() as stack:
                measure(Match(precision, Path(name), arguments, stack), systems)


def is_there(system: str, openvino: str | None) -> bool:
    """Whether a system is installed; if not, a line says so."""
    there = openvino is not None if system == "openvino" else find_spec(system) is not None
    if not there:
        print(f"{system} left out: " + ("no --openvino PYTHON" if system == "openvino" else "it is not installed"))
    return there


def write_model(folder: Path) -> Path:
    """Write a T5 with random weights, as transformers saves it, and a tokenizer that has names alone."""
    transformers: Any = import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    special = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES, **special))
    # With gains of 1, the tied embedding prefers the last token, and every text repeats one.
    torch.nn.init.normal_(model.decoder.final_layer_norm.weight)
    model.save_pretrained(folder)
    write_tokenizer(SIZES["vocab_size"], folder)
    roles = {"pad_token": SPECIAL[PAD], "unk_token": SPECIAL[UNKNOWN], "eos_token": SPECIAL[END]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Match:
    """What the players of one precision are made from: `folder` has the model and the run; `stack` ends processes."""

    precision: Precision
    folder: Path
    arguments: argparse.Namespace
    stack: ExitStack

    def child(self, name: str, environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Child:
        """A process of `benchmarks.decode`, which ends with the match."""
        child = Child(name, environment or {}, python)
        self.stack.callback(child.close)
        return child


def measure(match: Match, systems: Sequence[str]) -> None:
    """Let all systems take turns in one precision, and print a table for each batch."""
    players = {"xformc": engine_player(match)}
    for name in systems:
        players |= SYSTEMS[name](match)
    length, pace = match.arguments.length, Pace(match.arguments.rounds, float("inf"))
    for batch in match.arguments.batches:
        plays = {name: partial(player, batch) for name, player in players.items()}
        for play in plays.values():
            play(WARM_UP)
        times, found = take_turns(plays, length, pace)
        for name, hypotheses in found.items():
            assert all(len(one) == length for one in hypotheses), f"{name} wrote another number of tokens"
        print("\n".join([f"{match.precision}, batch of {batch}", *lines(times, found)]), flush=True)


def lines(times: Mapping[str, list[float]], found: Mapping[str, Hypotheses]) -> Iterator[str]:
    """A line for each system; of CTranslate2's settings, for the faster one."""
    settings = sorted((name for name in times if name.startswith("ctranslate2")), key=lambda name: median(times[name]))
    for name in (name for name in times if name not in settings[1:]):
        same = sum(own == other for own, other in zip(found["xformc"], found[name], strict=True))
        beside = "" if name == "xformc" else f"{ratio(times['xformc'], times[name]):26}={same} of {len(found[name])}"
        yield f"  {name:32}{median(times[name]) * 1000:10.1f} ms{beside}"


def engine_player(match: Match) -> Player:
    """An engine of `--target native`, built from the imported run."""
    run, engine = match.folder / "run", match.folder / f"engine_{match.precision}"
    spec = load_spec(run / SPEC)
    options = write_engine(spec, load_weights(run, compile_spec(spec)), match.precision, "native", engine)
    session = whole_session(engine, SEARCH, target="native", threads=match.arguments.threads)
    beam = match.arguments.beam

    def play(batch: int, length: int) -> tuple[float, Hypotheses]:
        source, _ = sentences(batch)
        given = replace(limited(options, beam, length), min_length=length)
        began = time.perf_counter()
        found = search(session, {"source": source}, given)
        seconds = time.perf_counter() - began
        return seconds, names([found.text(row, 0) for row in range(batch)])

    return play


def ctranslate2_players(match: Match) -> dict[str, Player]:
    """CTranslate2 in each of its settings, converted from the folder of transformers."""
    converter: Any = import_module("ctranslate2.converters").TransformersConverter(str(match.folder / "model"))
    folder = converter.convert(str(match.folder / "ctranslate2"), quantization=match.precision, force=True)
    players: dict[str, Player] = {}
    for setting, environment in SETTINGS.items():
        child = match.child("peer", environment)
        child.ask(do="load", folder=folder, compute_type=match.precision, threads=match.arguments.threads)
        players[f"ctranslate2 {version('ctranslate2')} ({setting})"] = partial(
            ask_ctranslate2, child, match.arguments.beam
        )
    return players


def ask_ctranslate2(child: Child, beam: int, batch: int, length: int) -> tuple[float, Hypotheses]:
    """Let CTranslate2 search."""
    _, source = sentences(batch)
    options = {"beam": beam, "length": length, "least": length, "length_penalty": 1.0}
    answer = child.ask(do="translate", source=source, **options)
    return answer["seconds"], answer["tokens"]


def onnxruntime_player(match: Match) -> dict[str, Player]:
    """ONNX Runtime's operator BeamSearch, in a model that its scripts make."""
    folder, out = match.folder / "eager", match.folder / f"beam_search_{match.precision}.onnx"
    if not folder.exists():
        shutil.copytree(match.folder / "model", folder, copy_function=os.link)
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()  # it is a link
        # The scripts write opset 12, which has no scaled_dot_product_attention.
        path.write_text(json.dumps({**config, "attn_implementation": "eager"}), encoding="utf-8")
    converter = Child("beam_peers", {})
    converter.ask(do="convert_onnxruntime", folder=str(folder), out=str(out), precision=match.precision)
    converter.close()
    child = match.child("beam_peers")
    answer = child.ask(do="load_onnxruntime", model=str(out), threads=match.arguments.threads)
    return {
        f"onnxruntime {answer['version']} BeamSearch": partial(ask, child, "search_onnxruntime", match.arguments.beam)
    }


def openvino_player(match: Match) -> dict[str, Player]:
    """OpenVINO, by optimum-intel."""
    child = match.child("beam_peers", python=match.arguments.openvino)
    given = {"folder": str(match.folder / "model"), "precision": match.precision, "threads": match.arguments.threads}
    answer = child.ask(do="load_openvino", **given)
    return {f"openvino {answer['version']}": partial(ask, child, "generate", match.arguments.beam)}


def transformers_player(match: Match) -> dict[str, Player]:
    """The `generate` of transformers, which has float32 alone."""
    if match.precision != "float32":
        return {}
    child = match.child("beam_peers")
    given = {"folder": str(match.folder / "model"), "threads": match.arguments.threads}
    answer = child.ask(do="load_transformers", **given)
    return {f"transformers {answer['version']}": partial(ask, child, "generate", match.arguments.beam)}


def ask(child: Child, what: str, beam: int, batch: int, length: int) -> tuple[float, Hypotheses]:
    """Let another system search."""
    source, _ = sentences(batch)
    answer = child.ask(do=what, source=source.tolist(), beam=beam, length=length)
    return answer["seconds"], names(answer["tokens"])


def names(texts: Sequence[Sequence[int]]) -> Hypotheses:
    """The names of tokens, as the tokenizer has them."""
    return [[SPECIAL[token] if token < len(SPECIAL) else f"t{token}" for token in text] for text in texts]


SYSTEMS: dict[str, Callable[[Match], dict[str, Player]]] = {
    "ctranslate2": ctranslate2_players,
    "onnxruntime": onnxruntime_player,
    "openvino": openvino_player,
    "transformers": transformers_player,
}


if __name__ == "__main__":
    main()
