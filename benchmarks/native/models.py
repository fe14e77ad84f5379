"""Writes the same weights as an engine and as a CTranslate2 model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.decode.engines import make_spec, write_peer
from benchmarks.text import one_tokenizer, pieces_of
from xformc.api import Spec, build, load_spec
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.weight_files import load_weights
from xformc.format.manifest import SearchOptions
from xformc.format.precision import Precision
from xformc.runtime import load


@dataclass(frozen=True)
class Model:
    """The two folders of a model, its SentencePiece model, and the engine's options of the search."""

    engine: Path
    peer: Path
    tokenizer: Path
    search: SearchOptions
    precision: Precision


def trained_model(run: Path, precision: Precision, folder: Path) -> Model:
    """Write the models of a run into the new `folder`."""
    spec = load_spec(run / "spec.yaml")
    return _write(spec, load_weights(run, compile_spec(spec)), run / "tokenizer.model", precision, folder)


def fresh_model(name: str, tokenizer: Path, precision: Precision, folder: Path) -> Model:
    """Write one of the models of benchmarks.decode with randomly initialized weights into the new `folder`."""
    folder.mkdir()
    make_spec(name, folder)
    spec = load_spec(folder / f"{name}.yaml")
    return _write(spec, TorchModule(compile_spec(spec), seed=0).arrays(), tokenizer, precision, folder)


def _write(spec: Spec, weights: Mapping[str, np.ndarray], tokenizer: Path, precision: Precision, folder: Path) -> Model:
    engine, peer = folder / "engine", folder / "peer"
    tokenizers = {"source": tokenizer, "target": tokenizer}
    build(spec, engine, weights=weights, tokenizers=tokenizers, target="native", precision=precision)
    loaded = load(engine, threads=1)
    file = one_tokenizer(loaded, engine)
    write_peer(spec, weights, precision, peer, pieces_of(file, loaded))
    return Model(engine, peer, file, loaded.manifest.search, precision)
