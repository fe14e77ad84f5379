"""The benchmarks of translated text, on a tiny Transformer with randomly initialized weights."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_engine import SENTENCES, train_tokenizer

from benchmarks import invariance
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.runtime import Engine, load
from xformc.runtime.session import Session

SPEC = "extends: transformer_base\nsizes: {{layers: 1, d_model: 16, d_ff: 16, heads: 2, vocabulary: {size}}}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`engine`, and the weights that it has as `model.safetensors`."""
    path = tmp_path_factory.mktemp("text")
    size = train_tokenizer(path / "tokenizer.model")
    (path / "tiny.yaml").write_text(SPEC.format(size=size))
    spec = load_spec(path / "tiny.yaml")
    weights = TorchModule(compile_spec(spec), seed=3).arrays()
    save_file(weights, path / "model.safetensors")
    tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), path / "tokenizer.model")
    build_engine(spec, weights, tokenizers, "portable", path / "engine")
    return path


@pytest.fixture(scope="module")
def transformer(folder: Path) -> Engine:
    return load(folder / "engine", threads=1)


def test_a_change_is_counted_where_the_batch_changes_a_score(
    transformer: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run

    def leaky(session: Session, *given: Any) -> Any:
        tokens, lengths, scores = run(session, *given)
        return tokens, lengths, scores if len(tokens) == 1 else np.nextafter(scores, np.float32(0))

    monkeypatch.setattr(Session, "run", leaky)
    found = list(invariance.changes(transformer, SENTENCES))
    assert {(one.tokens, one.scores) for one in found if "tokens" in one.way and "2,048" not in one.way} == {
        (0, len(SENTENCES))
    }


def test_translations_are_those_of_ctranslate2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    from benchmarks import text

    monkeypatch.setattr(text, "SETTINGS", {"default": {}})
    monkeypatch.setattr(text, "PEER_BATCH_TOKENS", (2048,))
    paths = {"engine": folder / "engine", "run": folder / "model.safetensors"}
    arguments = argparse.Namespace(
        **paths, threads=2, rounds=1, tokenize="13a", longest=12, hugging_face=False, all=None
    )
    (folder / "work").mkdir()
    found = text.compare(arguments, SENTENCES, SENTENCES, folder / "work")
    assert found["ctranslate2"]["same"] == len(SENTENCES)
    assert found["xformc"]["chrf"] == found["ctranslate2"]["chrf"]
    assert found["xformc"]["seconds"] > 0
