"""The Python API: its names, what importing it costs, and a way from a spec to an engine in Python alone."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from tiny_run import write_corpus, write_spec

import xformc
from xformc.format.precision import Precision

SURFACE = {
    "Alignment", "Certificate", "Continuation", "Engine", "Hypothesis", "Prediction", "SearchResult", "Spec",
    "TrainResult", "UserError", "build", "list_specs", "load", "load_spec", "minimum_bayes_risk", "train", "verify",
}  # fmt: skip
SMALL = {
    "sizes.layers": 1, "sizes.d_model": 16, "sizes.d_ff": 24, "sizes.heads": 2, "sizes.vocabulary": 40,
    "train.tokenizer.kind": "char",
}  # fmt: skip


def test_the_surface_is_what_is_named() -> None:
    assert set(xformc.__all__) == SURFACE
    assert set(dir(xformc)) >= SURFACE


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_every_public_thing_is_documented_and_typed(name: str) -> None:
    thing = getattr(xformc, name)
    assert inspect.getdoc(thing)
    functions = [thing] if inspect.isfunction(thing) else [
        member for key, member in vars(thing).items() if inspect.isfunction(member) and not key.startswith("_")
    ]  # fmt: skip
    for function in functions:
        assert inspect.getdoc(function), function
        signature = inspect.signature(function)
        untyped = [key for key, one in signature.parameters.items() if one.annotation is one.empty and key != "self"]
        assert (untyped, signature.return_annotation is not signature.empty) == ([], True), function


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compile'"):
        _ = xformc.compile  # type: ignore[attr-defined]  # pyright: ignore


def test_importing_brings_no_optional_package() -> None:
    code = "import sys, xformc; print(sorted({'torch', 'onnx', 'onnxruntime', 'pydantic', 'yaml'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_a_missing_package_says_what_to_install() -> None:
    code = "import sys; sys.modules['yaml'] = None\nimport xformc\n"
    code += "try: xformc.load_spec\nexcept ImportError as error: print(error)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "this needs the package yaml: pip install 'xformc[build]'\n"


def test_specs_are_listed_and_loaded_with_settings() -> None:
    assert "transformer_base" in xformc.list_specs()
    spec = xformc.load_spec("transformer_base", {"sizes.layers": 2})
    assert (spec.name, spec.sizes["layers"]) == ("transformer_base", 2)


@pytest.fixture
def spec() -> "xformc.Spec":
    return xformc.load_spec("transformer_base", SMALL)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    lines = tmp_path / "lines.txt"
    lines.write_text("the quick brown fox jumps over the lazy dog\n" * 4)
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines), model_prefix=str(tmp_path / "tokenizer"), model_type="char", vocab_size=40, pad_id=0,
        unk_id=1, bos_id=2, eos_id=3, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return tmp_path / "tokenizer.model"


def test_a_module_gives_logits_or_the_loss(spec: "xformc.Spec") -> None:
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    logits = spec.module()(source, target)
    assert logits.shape == (1, 2, 40)
    loss, nll, count = spec.module(loss=True)(source, target, torch.tensor([[7, 3]]))
    assert (loss.ndim, nll.ndim, int(count)) == (0, 0, 2)
    first, same, other = (spec.module(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_module_of_ones_own_loop_becomes_an_engine(spec: "xformc.Spec", tokenizer: Path, tmp_path: Path) -> None:
    module = spec.module(seed=5)
    with torch.no_grad():
        module.get_parameter("encoder.0.self_attention.query.weight").mul_(0.5)
    files = {"source": tokenizer, "target": tokenizer}
    certificate = xformc.build(spec, tmp_path / "engine", weights=module, tokenizers=files, target="cpu")
    assert certificate.passed
    with xformc.load(tmp_path / "engine", threads=1) as engine:
        [[best]] = engine.translate(["the fox"], beam_size=2)
        assert np.isfinite(best.score)
    again = xformc.build(spec, str(tmp_path / "again"), weights=module.state_dict(), tokenizers=files, target="cpu")
    assert again.passed
    assert (tmp_path / "again/model.onnx").read_bytes() == (tmp_path / "engine/model.onnx").read_bytes()
    assert xformc.verify(tmp_path / "engine").passed


def test_tokenizers_that_do_not_fit_are_refused(spec: "xformc.Spec", tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "text.model").write_bytes(b"not a model")
    small = xformc.load_spec("numbers", {"sizes.vocabulary": 10})
    for built, name, file, message in (
        (spec, "target", tmp_path / "text.model", "not a SentencePiece model"),
        (spec, "target", tmp_path / "none.model", "no such file"),
        (spec, "targets", tokenizer, "a tokenizer for targets, which has no tokens"),
        (small, "source", tokenizer, "pieces; the engine's vocabulary 10"),
    ):
        with pytest.raises(xformc.UserError, match=message):
            xformc.build(built, tmp_path / "engine", tokenizers={name: file})
        assert not (tmp_path / "engine").exists()


def test_the_weights_of_a_compiled_module_are_taken(spec: "xformc.Spec", tmp_path: Path) -> None:
    state = {f"_orig_mod.{name}": value.bfloat16() for name, value in spec.module().state_dict().items()}
    assert xformc.build(spec, tmp_path / "engine", weights=state, target="cpu").passed


AHEAD = """\
extends: gpt
sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 20, max_positions: 16}
model:
  logits:
    do:
      second: {linear: vocabulary}
      loss: {later_token_loss: {ahead: 2, weight: 0.3}}
      first: {linear: {from: x, to: vocabulary}}
tie: []
train: {max_length: 16}
"""
"""A second head that predicts the token after the next one, in training alone."""


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_what_only_an_auxiliary_loss_needs_is_not_in_the_engine(tmp_path: Path, precision: Precision) -> None:
    (tmp_path / "ahead.yaml").write_text(AHEAD)
    spec = xformc.load_spec(tmp_path / "ahead.yaml")
    state = spec.module().state_dict()
    assert "logits.second.weight" in state
    assert xformc.build(spec, tmp_path / "engine", weights=state, target="cpu", precision=precision).passed
    assert b"second" not in (tmp_path / "engine" / "model.onnx").read_bytes()
    assert xformc.verify(tmp_path / "engine").passed


def test_weights_that_do_not_fit_are_named(spec: "xformc.Spec", tmp_path: Path) -> None:
    state = spec.module().state_dict()
    name = next(iter(state))
    with pytest.raises(xformc.UserError, match=f"missing: {name.replace('.', '/')}"):
        xformc.build(spec, tmp_path / "engine", weights={key: value for key, value in state.items() if key != name})
    state[name] = state[name] * float("nan")
    with pytest.raises(xformc.UserError, match="values that are not finite"):
        xformc.build(spec, tmp_path / "engine", weights=state)
    assert not (tmp_path / "engine").exists()


def test_a_wrong_precision_is_refused(spec: "xformc.Spec", tmp_path: Path) -> None:
    with pytest.raises(xformc.UserError, match="precision is 'half'"):
        xformc.build(spec, tmp_path / "engine", precision="half")  # type: ignore[arg-type]  # pyright: ignore


def test_a_run_is_built_without_its_spec(tmp_path: Path) -> None:
    data, spec = write_corpus(tmp_path / "data"), write_spec(tmp_path)
    trained_run = tmp_path / "run"
    result = xformc.train(spec, data, trained_run, minutes=0.01)
    assert (result.run, result.weights) == (trained_run, trained_run / "weights.safetensors")
    assert xformc.build(trained_run, tmp_path / "engine", target="cpu").passed
    with xformc.load(tmp_path / "engine", threads=1) as engine:
        assert engine.manifest.weights == "trained"
        assert engine.tokenizer is not None


def test_a_closed_engine_refuses_calls(copy_engine: Path) -> None:
    engine = xformc.load(copy_engine, threads=1)
    with engine as same:
        assert same.translate(["hello world"])[0][0].text == "hello world"
    with pytest.raises(xformc.UserError, match="the engine is closed"):
        engine.translate(["hello world"])
    with pytest.raises(xformc.UserError, match="the engine is closed"):
        engine.translate(["hello world"], workers=2)
    engine.close()


def test_an_engine_is_verified_without_the_compilers_packages(spec: "xformc.Spec", tmp_path: Path) -> None:
    xformc.build(spec, tmp_path / "engine", target="cpu")
    code = f"""
import sys
for name in ("torch", "onnx", "pydantic", "yaml", "safetensors", "ml_dtypes"):
    sys.modules[name] = None
import xformc
found = xformc.verify({str(tmp_path / "engine")!r})
print(found.passed, [stage.name for stage in found.stages])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("True ['files', 'model', 'batch']\n", "")
