"""Engines of random weights that several files of tests share, each built when it is first asked for."""

from pathlib import Path
from typing import Literal

from tests import tiny_engine
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.format.targets import Target

SEARCH = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
decode: {beam_size: 3, n_best: 3, max_length: {factor: 1, offset: 5}}
"""
SAMPLE = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
"""
TEXTS = [
    "two dogs play",
    "one",
    "a man rides a red bicycle",
    "hello world",
    "we were here before you",
    "numbers in words",
]
"""What they read."""

Kind = Literal["search", "covering", "sample"]
KINDS: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "search": (SEARCH, ("source", "target")),
    "covering": (SEARCH.replace("n_best: 3", "n_best: 3, coverage_penalty: 0.3"), ("source", "target")),
    "sample": (SAMPLE, ("text",)),
}


class SmallEngines:
    """`small_engines("search", "native")` is the folder of an engine, to be left as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._tokenizer = folder, folder / "tokenizer.model"
        self._pieces = tiny_engine.train_tokenizer(self._tokenizer)

    def __call__(self, kind: Kind, target: Target) -> Path:
        if target == "native":
            kernel_library()
        built = self._folder / f"{kind}-{target}"
        if not built.exists():
            text, inputs = KINDS[kind]
            spec = self._folder / f"{kind}.yaml"
            spec.write_text(text.replace("PIECES", str(self._pieces)))
            build_engine(load_spec(spec), None, dict.fromkeys(inputs, self._tokenizer), target, built)
        return built
