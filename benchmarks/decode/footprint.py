"""Measures peak memory and load time of an engine or a CTranslate2 model, in its own process (see child.py)."""

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  # CTranslate2 would import it, and does not need it

from benchmarks.decode.child import answer_requests  # noqa: E402


def peak() -> int:
    """Return the peak resident memory in bytes; getrusage would also count the parent's before exec."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def engine(folder: str, target: Any, threads: int, beam: int, length: int, source: list[Any]) -> dict[str, Any]:
    """Load an engine's model and translate a batch of ids twice."""
    import numpy as np

    from xformc.format.interfaces import SEARCH
    from xformc.format.manifest import SearchOptions
    from xformc.runtime.searching.search import search
    from xformc.runtime.whole import whole_session

    import_module("onnxruntime")  # its memory is not the model's
    before, began = peak(), time.perf_counter()
    session = whole_session(Path(folder), SEARCH, threads=threads, target=target)
    loaded = time.perf_counter()
    options = SearchOptions(beam, 1, 0.6, 0.0, length)
    search(session, {"source": np.array(source[:1])}, options)
    first = time.perf_counter()
    search(session, {"source": np.array(source)}, options)
    return {"before": before, "peak": peak(), "load": loaded - began, "first": first - began}


def generator(folder: str, prompt: list[int], tokens: int) -> dict[str, Any]:
    """Load an engine's model and continue one prompt of ids by so many tokens."""
    from xformc.format.interfaces import SAMPLING
    from xformc.format.manifest import SampleOptions
    from xformc.runtime.generation.generate import Prompt, sample
    from xformc.runtime.whole import whole_session

    import_module("onnxruntime")  # its memory is not the model's
    before = peak()
    session = whole_session(Path(folder), SAMPLING, target="native", threads=1)
    sample(session, [Prompt(prompt, 0)], SampleOptions(0.0, 0, 1.0, tokens))
    return {"before": before, "peak": peak()}


def peer(folder: str, precision: str, threads: int, beam: int, length: int, source: list[Any]) -> dict[str, Any]:
    """The same with a CTranslate2 model and names of tokens."""
    import ctranslate2  # pyright: ignore[reportMissingImports]  # of the extra bench

    before, began = peak(), time.perf_counter()
    model = ctranslate2.Translator(folder, inter_threads=1, intra_threads=threads, compute_type=precision)
    loaded = time.perf_counter()
    options = {"beam_size": beam, "max_decoding_length": length, "length_penalty": 0.6}
    model.translate_batch(source[:1], **options)
    first = time.perf_counter()
    model.translate_batch(source, **options)
    return {"before": before, "peak": peak(), "load": loaded - began, "first": first - began}


_held = list[Any]()
"""Models that stay loaded."""


def hold(folder: str, batch: int) -> dict[str, Any]:
    """Load a model on one thread, translate a batch of random sentences, and keep the model."""
    from benchmarks.load import open_model, random_sentences

    translate, vocabulary = open_model(Path(folder), 1)
    translate(random_sentences(batch, vocabulary))
    _held.append(translate)
    return {}


def proportional() -> dict[str, Any]:
    """Return the proportional set size: each page divided by the number of processes that have it."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {"bytes": int(fields["Pss"].split()[0]) * 1024}


if __name__ == "__main__":
    answer_requests(
        {"engine": engine, "generator": generator, "peer": peer, "hold": hold, "proportional": proportional}
    )
