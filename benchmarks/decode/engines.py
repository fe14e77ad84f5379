"""Writes the same randomly initialized weights as an engine's model and as a CTranslate2 model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.decode.cases import MODELS, VOCABULARY
from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.shortlist import Shortlist
from xformc.compiler.spec import Spec, load_spec
from xformc.format.manifest import SearchOptions
from xformc.format.precision import Caches, Precision
from xformc.format.targets import Target


def make_spec(model: str, folder: Path, vocabulary: int = VOCABULARY) -> Spec:
    """Return the spec of one of MODELS."""
    path = folder / f"{model}.yaml"
    path.write_text(MODELS[model] % vocabulary, encoding="utf-8")
    return load_spec(path)


def fresh_weights(spec: Spec, target: Target) -> dict[str, np.ndarray]:
    """Return randomly initialized weights by path, always the same."""
    module = TorchModule(compile_engine(spec, target).graph, seed=0)
    return module.arrays()


def write_engine(
    spec: Spec,
    weights: Mapping[str, np.ndarray],
    precision: Precision,
    target: Target,
    folder: Path,
    caches: Caches = "auto",
    *,
    shortlist: Shortlist | None = None,
) -> SearchOptions:
    """Write only the engine's model, without a certificate, into the new `folder`; return its search defaults."""
    folder.mkdir()
    program = replace(compile_engine(spec, target, spec.precisions(precision)), caches=caches, shortlist=shortlist)
    initializers = Initializers(weights, program.precision)
    save_models(emit_engine(program, initializers), initializers, folder)
    return program.search


def write_peer(
    spec: Spec,
    weights: Mapping[str, np.ndarray],
    precision: str,
    folder: Path,
    pieces: Sequence[str] | None = None,
    shortlist: Shortlist | None = None,
) -> None:
    """Write the CTranslate2 model for this precision into the new `folder`; the rest is as for `export`."""
    from xformc.exports.ctranslate2 import export

    kind = peer_precision(precision)
    export(spec, weights, folder, quantization=None if kind == "float32" else kind, pieces=pieces, shortlist=shortlist)


def peer_precision(precision: str) -> str:
    """How CTranslate2 computes beside an engine of this precision: it has no bfloat16 on a CPU."""
    return "float32" if precision == "bfloat16" else precision


def limited(options: SearchOptions, beam: int, length: int) -> SearchOptions:
    """Return the options with another beam, and outputs of at most `length` tokens."""
    return replace(options, beam_size=beam, n_best=1, max_length_factor=0.0, max_length_offset=length)


def bytes_on_disk(folder: Path) -> int:
    """Return the size of all files in the folder."""
    return sum(path.stat().st_size for path in folder.iterdir())
