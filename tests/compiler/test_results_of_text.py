"""Results that depend on the written text: a second model computes them from the texts that the search found."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tiny_engine import write_manifest

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.backends.onnx import initializers
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import verify_engine
from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.format.tokens import BEGIN
from xformc.runtime import load

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: 40, numbers: 2, labels: 3}
results:
  target: {text: logits}
  quality: {numbers: quality}
  topic: {labels: topic}
  guess: {numbers: guess}
  doubt: {numbers: doubt, each: token}
model:
  read: {from: decoder, do: [mean]}
  quality: {from: read, do: [linear: numbers]}
  topic: {from: decoder, do: [max, linear: labels]}
  guess: {from: encoder, do: [mean, linear: numbers]}
  doubt: {from: encoder, do: [plus: {by: read}, linear: numbers]}
"""
SAMPLED = SPEC + "decode: {sample: {temperature: 1.5}}\n"
SOURCES = np.array([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [12, 11, 3, 0, 0]])


def spec_of(folder: Path, text: str = SPEC) -> Spec:
    """The spec from a file."""
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    return load_spec(folder / "spec.yaml")


@pytest.mark.parametrize("target", ["portable", "native", "cuda"])
@pytest.mark.parametrize("text", [SPEC, SAMPLED], ids=["searched", "sampled"])
def test_they_are_those_of_the_training_form(tmp_path: Path, target: Target, text: str) -> None:
    """Of every hypothesis, from the tokens that the decoder had read."""
    if target == "native":
        kernel_library()
    spec = spec_of(tmp_path, text)
    certificate = build_engine(spec, None, None, target, tmp_path / "engine")
    assert [stage.name for stage in certificate.stages if stage.name != "whole"][-2:] == ["results", "text"]
    assert verify_engine(tmp_path / "engine").passed
    graph = compile_engine(spec).graph
    module = TorchModule(graph).eval()
    module.load_arrays(engine_parameters(graph, tmp_path / "engine" / "model.onnx"))
    with load(tmp_path / "engine", device="cpu") as engine:
        found = engine.transcribe({"source": SOURCES}, **({"n_best": 3} if text == SPEC else {}))
    values: list[float] = []
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for one in hypotheses:
            written = torch.tensor([[BEGIN, *one.tokens[:-1]]])
            with torch.inference_mode():
                given = torch.tensor(source[None, : np.count_nonzero(source)])
                _, quality, topic, guess, doubt = module(given, written)
            np.testing.assert_allclose(one.results["quality"], quality[0].numpy(), atol=1e-5)
            np.testing.assert_allclose(one.results["topic"].probabilities, topic.softmax(-1).numpy(), atol=1e-5)
            np.testing.assert_allclose(one.results["guess"], guess[0].numpy(), atol=1e-5)
            np.testing.assert_allclose(one.results["doubt"], doubt[0].numpy(), atol=1e-5)
            values.append(float(one.results["quality"][0]))
    assert len(set(values)) > (len(SOURCES) if text == SPEC else 1), "results differ with the texts"


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_weights_are_stored_once_and_rounded_as_the_search_has_them(
    tmp_path: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_library()
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    spec, out = spec_of(tmp_path), tmp_path / "engine"
    assert build_engine(spec, None, None, "native", out, rounding=Rounding(precision)).passed
    assert verify_engine(out).passed
    names = {path.name for path in out.iterdir()}
    assert names >= {"model.onnx", "model.onnx.data", "results.onnx"}
    files = [onnx.load(out / name, load_external_data=False) for name in ("model.onnx", "results.onnx")]
    places = [
        {(item.value, other.value) for item, other, *_ in (tensor.external_data for tensor in external(model))}
        for model in files
    ]
    assert places[1] and places[1] - places[0] != places[1], "the models share tensors"


def external(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The tensors of a model that are in its data file."""
    return [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]


def seal(folder: Path) -> None:
    """Write the sizes and hashes of the files as they are now."""
    manifest = json.loads((folder / "engine.json").read_text())
    write_manifest(folder, {key: value for key, value in manifest.items() if key not in ("files", "checksum")})


def test_a_model_that_is_not_the_search_s_is_found(tmp_path: Path) -> None:
    """Another computation fails the certificate; other outputs are one error."""
    spec, out = spec_of(tmp_path), tmp_path / "engine"
    build_engine(spec, None, None, "portable", out)
    whole = onnx.load(out / "results.onnx")
    for node in whole.graph.node:
        if node.output[0] == "quality":
            node.op_type = "Neg"
    onnx.save(whole, out / "results.onnx")
    with pytest.raises(UserError, match="were written"):
        load(out)
    seal(out)
    stages = {stage.name: stage.passed for stage in verify_engine(out).stages}
    assert not stages["text"]
    del whole.graph.output[0]
    onnx.save(whole, out / "results.onnx")
    seal(out)
    with pytest.raises(UserError, match="not an xformc model: it lacks quality"):
        load(out, verify_hashes=False)


def test_closing_an_engine_closes_both_models(tmp_path: Path) -> None:
    build_engine(spec_of(tmp_path), None, None, "portable", tmp_path / "engine")
    engine = load(tmp_path / "engine")
    both = engine.session.shared_by(2)
    assert both.of_text is not None and both.of_text.workers == 2
    found = engine.transcribe({"source": SOURCES}, workers=2)
    assert [one[0].results["quality"].tolist() for one in found]
    engine.close()
    with pytest.raises(UserError, match="the engine is closed"):
        both.of_text.run({})


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (SPEC, "tensorrt", "--target tensorrt has no way for quality, a result that depends on the written text"),
        (
            SPEC.replace("guess: {numbers: guess}", "guess: {ctc: guess}").replace(
                "[mean, linear: numbers]", "[linear: vocabulary]"
            ),
            "cuda",
            "--target cuda has no way for guess, the search of CTC",
        ),
        (SPEC + "decode: {stop_rule: best}\n", "cuda", "--target cuda has no search with decode.stop_rule"),
    ],
)
def test_what_fixed_shapes_lack_is_refused(tmp_path: Path, text: str, target: Target, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_engine(spec_of(tmp_path, text), None, None, target, tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
