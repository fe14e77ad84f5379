"""Speed and BLEU on real text, from text to text: a trained engine against CTranslate2.

    python -m benchmarks.text ENGINE RUN test.en test.de [--threads 2] [--rounds 3] [--all ENGINE] [--json FILE]

ENGINE was built from RUN with a spec that extends transformer_base and has one vocabulary for both sides. CTranslate2
gets the same weights in the same precision (float32 beside bfloat16, which it lacks on a CPU) and the same
SentencePiece model. Each is first tried on some lines, with all threads for one batch and with one thread for each of
several batches; CTranslate2 also with CT2_FORCE_CPU_ISA=AVX512 and with three batch sizes. Then each translates the
whole file in its best setting, in turns; times are medians. Empty lines are skipped. With --hugging-face, Hugging
Face's Marian takes turns as well, with the same weights in float32, run by transformers and, if optimum-onnx is
installed, by ONNX Runtime. If ENGINE has a shortlist, CTranslate2 takes turns with the same lists as its vocabulary
map, too, and with --all an engine without one.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.child import Child
from benchmarks.decode.engines import limited, peer_precision, write_peer
from benchmarks.decode.speed import SETTINGS
from xformc.compiler import compile_spec
from xformc.compiler.certify.certify import engine_shortlist
from xformc.compiler.spec import Spec, load_spec
from xformc.compiler.weight_files import load_weights
from xformc.format.names import MODEL
from xformc.runtime import Engine, SearchArguments, load
from xformc.runtime.text.lines import read_text_file
from xformc.trainer.scores.metrics import make_bleu, translation_measures

TRIED_LINES = 100
PEER_BATCH_TOKENS = (512, 2048, 8192)
USUAL_LENGTH = 256
"""CTranslate2's default limit of output tokens."""


@dataclass(frozen=True)
class Setting:
    """A setting of CTranslate2: the child process, batches at once, source tokens of each batch, and whether it
    computes only the tokens of the vocabulary map."""

    child: str
    workers: int
    batch_tokens: int
    listed: bool = False


@dataclass(frozen=True)
class Player:
    """A timed system: a description of its best setting, and a function that returns seconds and translations."""

    setting: str
    translate: Callable[[list[str]], tuple[float, list[str]]]


@dataclass(frozen=True)
class SameModel:
    """The model of an engine for CTranslate2, in `folder`: its spec and weights, its SentencePiece model, and whether
    it has the engine's shortlist as its vocabulary map."""

    spec: Spec
    weights: Mapping[str, np.ndarray]
    tokenizer: Path
    listed: bool
    folder: Path

    @classmethod
    def written(cls, engine: Engine, place: Path, run: Path, folder: Path) -> "SameModel":
        """Write it for the engine at `place`, which was built from a run."""
        own, tokenizer, spec = engine.manifest, one_tokenizer(engine, place), load_spec(place / "spec.yaml")
        weights = load_weights(run, compile_spec(spec))
        shortlist = engine_shortlist(place / MODEL, own.inputs, own.written)
        write_peer(spec, weights, own.precision, folder, pieces_of(tokenizer, engine), shortlist)
        return cls(spec, weights, tokenizer, shortlist is not None, folder)


class Peer:
    """CTranslate2 with the engine's model, in one process for each of SETTINGS."""

    def __init__(self, engine: Engine, same: SameModel, threads: int, longest: int | None) -> None:
        self._longest = longest or USUAL_LENGTH
        self._search, self._threads, self._model = engine.manifest.search, threads, str(same.folder)
        self._precision, self._tokenizer = peer_precision(engine.manifest.precision), str(same.tokenizer)
        self._children = {name: Child("peer", variables) for name, variables in SETTINGS.items()}
        self._loaded = dict[str, int]()

    def translate(self, setting: Setting, lines: Sequence[str]) -> tuple[float, list[str]]:
        """Return seconds and translations in this setting; reloading the model, if needed, is not timed."""
        child = self._children[setting.child]
        if self._loaded.get(setting.child) != setting.workers:
            threads = max(1, self._threads // setting.workers)
            options = {"compute_type": self._precision, "threads": threads, "workers": setting.workers}
            child.ask(do="load", folder=self._model, **options)
            self._loaded[setting.child] = setting.workers
        found = child.ask(
            do="text",
            lines=list(lines),
            tokenizer=self._tokenizer,
            beam=self._search.beam_size,
            length_penalty=self._search.length_penalty,
            batch_tokens=setting.batch_tokens,
            length=self._longest,
            listed=setting.listed,
        )
        return found["seconds"], found["lines"]

    def best(self, lines: Sequence[str], *, listed: bool = False) -> Setting:
        """Return the setting that is fastest on these lines, the better of two runs."""
        choices = [Setting(*one, listed) for one in product(SETTINGS, {1, self._threads}, PEER_BATCH_TOKENS)]
        return min(choices, key=lambda one: min(self.translate(one, lines)[0] for _ in range(2)))

    def close(self) -> None:
        """End the processes."""
        for child in self._children.values():
            child.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=int, help="maximum output tokens for all systems; default: each system's own")
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's tokenizer")
    parser.add_argument("--hugging-face", action="store_true", help="also run transformers and optimum")
    parser.add_argument("--all", type=Path, metavar="ENGINE", help="the engine without its shortlist, beside it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    sources, references = read_text_file(arguments.source), read_text_file(arguments.reference)
    pairs = [pair for pair in zip(sources, references, strict=True) if pair[0].strip()]
    lines, references = map(list, zip(*pairs, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        results = compare(arguments, lines, references, Path(folder))
    print(f"{'':12} {'seconds':>8} {'sentences/s':>12} {'BLEU':>6} {'chrF2':>6} {'same':>7}  setting")
    for name, one in results.items():
        rate = f"{one['seconds']:8.2f} {len(lines) / one['seconds']:12.1f}"
        bleu = "none" if one["bleu"] is None else f"{one['bleu']:.2f}"
        print(f"{name:12} {rate} {bleu:>6} {one['chrf']:6.2f} {one['same']:7,}  {one['setting']}")
    print(f"same: number of {len(lines):,} translations that equal xformc's")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"lines": len(lines), **results}, indent=1) + "\n", encoding="utf-8")


def compare(
    arguments: argparse.Namespace, lines: list[str], references: list[str], folder: Path
) -> dict[str, dict[str, Any]]:
    """Run all systems on all lines in turns, each in its best setting; return the results by name."""
    engine = load(arguments.engine, threads=arguments.threads)
    same = SameModel.written(engine, arguments.engine, arguments.run, folder / "peer")
    tried, players = lines[:TRIED_LINES], dict[str, Player]()
    if arguments.hugging_face:
        players = hugging_face(same.spec, same.weights, engine, arguments, tried, folder / "onnx")
    peer = Peer(engine, same, arguments.threads, arguments.longest)
    workers = min(
        (1, arguments.threads),
        key=lambda count: min(ours(engine, tried, count, arguments.longest)[0] for _ in range(2)),
    )
    setting = peer.best(tried)
    players = {
        "xformc": Player(f"{workers} workers", partial(ours, engine, workers=workers, longest=arguments.longest)),
        "ctranslate2": Player(str(setting), partial(peer.translate, setting)),
        **players,
    }
    if same.listed:
        setting = peer.best(tried, listed=True)
        players["with vmap"] = Player(str(setting), partial(peer.translate, setting))
    if arguments.all is not None:
        whole = load(arguments.all, threads=arguments.threads)
        players["all tokens"] = Player("", partial(ours, whole, workers=workers, longest=arguments.longest))
    times, texts = take_turns(players, lines, arguments.rounds)
    peer.close()
    bleu = make_bleu(arguments.tokenize)
    return {
        name: {
            "seconds": statistics.median(times[name]),
            "setting": players[name].setting,
            "same": sum(map(str.__eq__, texts["xformc"], translated)),
            **{measure.key: measure.value for measure in translation_measures(translated, [references], bleu)},
        }
        for name, translated in texts.items()
    }


def take_turns(
    players: Mapping[str, Player], lines: list[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Return the seconds of each system in each round, and its translations."""
    times: dict[str, list[float]] = {name: [] for name in players}
    texts = dict[str, list[str]]()
    for _ in range(rounds):
        for name, player in players.items():
            seconds, texts[name] = player.translate(lines)
            times[name].append(seconds)
    return times, texts


def hugging_face(
    spec: Spec,
    weights: Mapping[str, np.ndarray],
    engine: Engine,
    arguments: argparse.Namespace,
    tried: list[str],
    folder: Path,
) -> dict[str, Player]:
    """Return Hugging Face's model by runtime, each with its fastest batch size."""
    from benchmarks.hugging_face import load_translators

    search, longest = engine.manifest.search, arguments.longest
    options = limited(search, search.beam_size, longest) if longest else search
    players = dict[str, Player]()
    for name, translator in load_translators(spec, weights, engine, options, arguments.threads, folder).items():
        tokens = translator.best(tried, PEER_BATCH_TOKENS)
        players[name] = Player(f"float32, batches of {tokens} tokens", partial(translator.translate, tokens))
    return players


def ours(engine: Engine, lines: Sequence[str], workers: int, longest: int | None) -> tuple[float, list[str]]:
    """Return the seconds and translations of the engine."""
    options: SearchArguments = {"max_length_factor": 0.0, "max_length_offset": longest} if longest else {}
    began = time.perf_counter()
    found = [best.text for best, *_ in engine.translate(lines, workers=workers, truncate=True, **options)]
    return time.perf_counter() - began, found


def one_tokenizer(engine: Engine, folder: Path) -> Path:
    """Return the SentencePiece model of both sides. Raises: SystemExit if there are two."""
    files = set(engine.manifest.tokenizers.values())
    if len(files) != 1:
        raise SystemExit("error: the engine must have one tokenizer for both sides")
    return folder / files.pop()


def pieces_of(tokenizer: Path, engine: Engine) -> list[str]:
    """Return the names of all tokens; those beyond the tokenizer's vocabulary are named after their ids."""
    import sentencepiece

    processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    known = processor.GetPieceSize()
    count = engine.manifest.inputs["target"].pieces
    return [processor.IdToPiece(token) if token < known else f"<unused {token}>" for token in range(count)]


if __name__ == "__main__":
    main()
