"""Players that continue prompts by their most likely tokens: an engine, and other systems in processes of their own."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.decode.child import Child
from benchmarks.decode.speed import SETTINGS
from xformc.format.manifest import SampleOptions
from xformc.format.precision import Precision
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.session import Session

Player = Callable[[list[list[int]], int], tuple[float, list[list[int]]]]
"""Continues prompts by so many tokens; returns the seconds and the tokens."""


def ours(session: Session, given: Sequence[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
    """Let the engine continue the prompts."""
    options = SampleOptions(temperature=0.0, top_k=0, top_p=1.0, max_new_tokens=tokens)
    began = time.perf_counter()
    found = sample(session, [Prompt(ids, 0) for ids in given], options)
    seconds = time.perf_counter() - began
    assert (found.lengths == tokens).all(), "a text ended before its limit"
    return seconds, found.tokens.tolist()


def ctranslate2_players(shared: Path, precision: Precision, threads: int, children: list[Child]) -> dict[str, Player]:
    """CTranslate2 in each of its settings, from the folder of transformers."""
    kind = "float32" if precision == "float32" else "int8"
    converter: Any = import_module("ctranslate2.converters").TransformersConverter(str(shared))
    folder = converter.convert(str(shared.parent / "ctranslate2"), quantization=kind, force=True)
    players: dict[str, Player] = {}
    for name, environment in SETTINGS.items():
        child = _child("peer", children, environment)
        child.ask(do="load_generator", folder=folder, compute_type=kind, threads=threads)
        players[name] = partial(_asked, child, "generate")
    return players


def transformers_player(shared: Path, threads: int, children: list[Child]) -> Player:
    """The `generate` of transformers, in float32."""
    child = _child("language_peers", children)
    child.ask(do="load_transformers", folder=str(shared), threads=threads)
    return partial(_asked, child, "generate_transformers")


def genai_player(shared: Path, precision: Precision, threads: int, children: list[Child]) -> Player:
    """onnxruntime-genai, with the model that its builder makes of the folder of transformers."""
    out, cache = str(shared.parent / "genai"), str(shared.parent / "cache")
    kind = "fp32" if precision == "float32" else precision
    said = ["-i", str(shared), "-o", out, "-p", kind, "-e", "cpu", "-c", cache]
    subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", *said], check=True, capture_output=True)
    child = _child("language_peers", children)
    child.ask(do="load_genai", folder=out, threads=threads)
    return partial(_asked, child, "generate_genai")


def _child(name: str, children: list[Child], environment: dict[str, str] | None = None) -> Child:
    child = Child(name, environment or {})
    children.append(child)
    return child


def _asked(child: Child, what: str, given: Sequence[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
    answer = child.ask(do=what, prompts=given, tokens=tokens)
    return answer["seconds"], answer["tokens"]
