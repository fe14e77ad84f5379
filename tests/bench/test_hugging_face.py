"""Hugging Face's Marian against an engine with the same weights, on a tiny Transformer."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tiny_engine import SENTENCES, train_tokenizer

pytest.importorskip("ctranslate2")

from benchmarks.hugging_face import batches, installed, marian
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.format.manifest import SearchOptions
from xformc.runtime.searching.search import length_limit

SPEC = "extends: transformer_base\nsizes: {{layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: {size}}}\n"
POSITIONS = 64


def make_spec(folder: Path, text: str) -> Spec:
    (folder / "tiny.yaml").write_text(text)
    return load_spec(folder / "tiny.yaml")


def make_weights(spec: Spec) -> dict[str, np.ndarray]:
    """Fresh weights, with gains and biases that are not all alike, so that none can take another's place."""
    generator = np.random.default_rng(7)
    weights = TorchModule(compile_spec(spec), seed=3).arrays()
    return {
        name: value + (generator.normal(0, 0.2, value.shape).astype(np.float32) if value.ndim < 3 else 0)
        for name, value in weights.items()
    }


@pytest.mark.filterwarnings("ignore")
def test_logits_are_those_of_the_torch_module(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    spec = make_spec(tmp_path, SPEC.format(size=50))
    weights = make_weights(spec)
    module = TorchModule(compile_spec(spec)).eval()
    module.load_arrays(weights)
    source, target = torch.randint(4, 50, (3, 9)), torch.randint(4, 50, (3, 7))
    source[1, 5:] = 0
    model = marian(spec, weights, POSITIONS)
    with torch.inference_mode():
        expected = module(source, target)
        found = model(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_translations_are_the_engines_where_length_is_not_rewarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    from benchmarks import text

    monkeypatch.setattr(text, "SETTINGS", {"default": {}})
    monkeypatch.setattr(text, "PEER_BATCH_TOKENS", (64,))
    size = train_tokenizer(tmp_path / "tokenizer.model")
    spec = make_spec(tmp_path, SPEC.format(size=size) + "decode: {length_penalty: 0}\n")
    weights = make_weights(spec)
    save_file(weights, tmp_path / "model.safetensors")
    tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), tmp_path / "tokenizer.model")
    build_engine(spec, weights, tokenizers, "portable", tmp_path / "engine")
    paths = {"engine": tmp_path / "engine", "run": tmp_path / "model.safetensors"}
    arguments = Namespace(**paths, threads=1, rounds=1, tokenize="13a", longest=12, hugging_face=True, all=None)
    found = text.compare(arguments, SENTENCES, SENTENCES, tmp_path)
    assert list(found) == ["xformc", "ctranslate2", *installed()]
    assert {name: one["same"] for name, one in found.items()} == dict.fromkeys(found, len(SENTENCES))
    assert all(one["seconds"] > 0 and one["chrf"] == found["xformc"]["chrf"] for one in found.values())


def test_what_marian_is_not_is_refused(tmp_path: Path) -> None:
    pre_norm = make_spec(tmp_path, SPEC.format(size=50) + "choices: {norm: pre}\n")
    with pytest.raises(SystemExit, match="norm: post"):
        marian(pre_norm, make_weights(pre_norm), POSITIONS)
    untied = make_spec(tmp_path, SPEC.format(size=50) + "tie: []\n")
    with pytest.raises(SystemExit, match="tie all three"):
        marian(untied, make_weights(untied), POSITIONS)


def test_a_missing_package_is_said_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent: Any = None
    monkeypatch.setitem(sys.modules, "transformers", absent)
    with pytest.raises(SystemExit, match=r"(?s)needs transformers.*pip install --group peers"):
        installed()
    monkeypatch.setitem(sys.modules, "transformers", sys)
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", absent)
    monkeypatch.setitem(sys.modules, "optimum", sys)
    assert installed() == ["transformers"]
    assert "note: without optimum-onnx" in capsys.readouterr().err


def test_batches_are_of_like_length_and_within_their_tokens() -> None:
    assert batches([3, 9, 4, 4, 20], 12) == [[4], [1], [2, 3, 0]]
    assert batches([], 12) == []


def test_the_limit_of_an_output_is_that_of_the_search() -> None:
    options = SearchOptions(4, 1, length_penalty=0.6, max_length_factor=1.2, max_length_offset=5)
    assert [length_limit(options, source) for source in (1, 9, 10)] == [6, 15, 17]
    assert length_limit(replace(options, max_length_factor=0.0, max_length_offset=0), 9) == 1
