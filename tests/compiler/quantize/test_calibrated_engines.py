"""Engines with int8 or float8 matrix products build, certify and verify; wrong products, targets or claims fail."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.calibration import probe_examples
from tests.compiler.conftest import TINY
from tests.small_specs import small
from tests.task_specs import LANGUAGE_MODEL, write_task
from tests.verified import assert_repeats
from xformc.compiler.backends.onnx.initializers import _tensors, read_input_scales
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import Certificate, verify_engine
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.int8 import Int8
from xformc.compiler.quantize.number_format import Grid
from xformc.compiler.quantize.stored import INPUT_SCALE
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.errors import UserError
from xformc.format.manifest import Calibration, manifest_checksum
from xformc.format.names import MODEL, STEP
from xformc.format.precision import Precision
from xformc.format.reader import read_manifest
from xformc.format.targets import Target

EIGHTS: tuple[Precision, ...] = ("int8", "float8")
SEARCH = ["forward", "step", "greedy", "beam", "batch", "whole"]
SIZES = "sizes: {layers: 1, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}\n"


def build(spec: Spec, precision: Precision | None, out: Path, target: Target = "tensorrt", **more) -> Certificate:
    examples = more.pop("examples", None)
    rounding = Rounding(precision, probe_examples(spec) if examples is None else examples)
    return build_engine(spec, more.pop("weights", None), None, target, out, rounding=rounding)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Certificate]]:
    """Engines of the tiny spec by precision, `calibrated` or not, and what was certified; to be left as they are."""

    @cache
    def make(precision: Precision, *, calibrated: bool = True) -> tuple[Path, Certificate]:
        folder = tmp_path_factory.mktemp("engines")
        (folder / "tiny.yaml").write_text(TINY)
        spec, examples = load_spec(folder / "tiny.yaml"), None if calibrated else ()
        return folder / "engine", build(spec, precision, folder / "engine", examples=examples)

    return make


def write(folder: Path, precision: str) -> Spec:
    path = folder / "model.yaml"
    path.write_text(f"extends: transformer_base\n{SIZES}precision: {precision}\n")
    return load_spec(path)


@pytest.mark.parametrize("precision", EIGHTS)
def test_products_are_certified_as_they_are_and_verify_repeats_it(built, precision: Precision) -> None:
    folder, certificate = built(precision)
    assert certificate.passed
    assert [stage.name for stage in certificate.stages] == [*SEARCH, precision, "results", "alone"]
    product = next(stage for stage in certificate.stages if stage.name == precision)
    assert product.value < 1e-6, "the same numbers, rounded the same"
    assert_repeats(folder, certificate)
    manifest = read_manifest(folder)
    assert (manifest.precision, manifest.calibration) == (precision, Calibration("mse", 4))


@pytest.mark.parametrize("precision", EIGHTS)
def test_each_product_takes_8_bits_on_both_sides(built, precision: Precision) -> None:
    graph = onnx.load(built(precision)[0] / STEP).graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    made = {name: node for node in graph.node for name in node.output}
    products = [node for node in graph.node if node.op_type == "Gemm"]
    eight = onnx.TensorProto.INT8 if precision == "int8" else onnx.TensorProto.FLOAT8E4M3FN
    for node in products:
        factor, matrix = (made[name] for name in node.input)
        assert (factor.op_type, matrix.op_type) == ("DequantizeLinear", "DequantizeLinear")
        narrow = made[factor.input[0]]
        assert narrow.op_type == "QuantizeLinear" and narrow.input[1] == factor.input[1]
        assert narrow.attribute[0].i == kinds[matrix.input[0]] == eight
    rounded_values = Counter(node.input[0] for node in graph.node if node.op_type == "QuantizeLinear")
    assert set(rounded_values.values()) == {1}, "what several products take is rounded once"
    assert len(rounded_values) < len(products)


def test_without_examples_int8_rounds_weights_alone(built) -> None:
    folder, certificate = built("int8", calibrated=False)
    assert [stage.name for stage in certificate.stages] == SEARCH
    assert read_manifest(folder).calibration is None
    assert not any(node.op_type == "QuantizeLinear" for node in onnx.load(folder / STEP).graph.node)


@pytest.mark.parametrize("name", ["gpt", "lstm_language_model", "seq2seq_attention", "bilstm_tagger", "vit"])
def test_shipped_specs_multiply_in_8_bits(name: str, tmp_path: Path) -> None:
    spec = small(name)
    precision = EIGHTS[len(name) % 2]
    assert build(spec, precision, tmp_path / "engine").passed
    assert verify_engine(tmp_path / "engine").passed


@pytest.mark.parametrize("task", ["language_model", "tagging", "frames", "images", "graph"])
def test_every_task_multiplies_in_8_bits(task: str, tmp_path: Path) -> None:
    certificate = build(write_task(tmp_path, task), "float8", tmp_path / "engine")
    assert [stage.name for stage in certificate.stages][-3:] == ["float8", "results", "alone"]


def test_a_spec_may_mix_them_path_by_path(tmp_path: Path) -> None:
    spec = write(tmp_path, '{default: int8, encoder: fp8, "*/0/feed_forward": fp16, decoder/0/cross_attention: int4}')
    built = build(spec, None, tmp_path / "engine")
    assert {"int8", "float8", "half"} <= {stage.name for stage in built.stages}
    scales = read_input_scales(tmp_path / "engine" / MODEL, spec.precisions())
    assert {spec.precisions()[name] for name in scales} == {"int8", "float8"}
    assert verify_engine(tmp_path / "engine").passed


def test_fp8_without_examples_is_refused_at_its_place(tmp_path: Path) -> None:
    spec = write(tmp_path, "{default: int8, encoder: fp8}")
    with pytest.raises(
        SpecError, match=r"model.yaml:3:37: .*float8 matrix products need calibration examples"
    ) as caught:
        build(spec, None, tmp_path / "engine", examples=())
    assert "--calibrate valid.en --calibrate valid.de" in str(caught.value)


def test_a_table_in_fp8_that_is_looked_up_alone_needs_no_examples(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(f"{LANGUAGE_MODEL}precision: {{decoder/embed: fp8}}\n")
    assert build(load_spec(path), None, tmp_path / "engine", examples=()).passed
    assert verify_engine(tmp_path / "engine").passed
    assert read_manifest(tmp_path / "engine").calibration is None


@pytest.mark.parametrize("target", ["portable", "cpu", "native", "cuda"])
def test_other_targets_refuse_fp8_at_its_place(tmp_path: Path, target: Target) -> None:
    spec = write(tmp_path, '{"encoder/0": fp8}')
    with pytest.raises(SpecError, match=rf"model.yaml:3:26: .*not target {target}"):
        build(spec, None, tmp_path / "engine", target)
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("target", ["portable", "cuda"])
def test_other_targets_refuse_fp8_on_the_command_line_and_examples(
    tiny_spec: Spec, tmp_path: Path, target: Target
) -> None:
    with pytest.raises(UserError, match=f"--precision float8: .* target {target}"):
        build(tiny_spec, "float8", tmp_path / "engine", target)
    with pytest.raises(
        UserError, match="--calibrate: only matrix products of --target tensorrt with int8 or float8 weights"
    ):
        build(tiny_spec, "int8", tmp_path / "engine", target)


def test_examples_that_nothing_needs_are_refused(tiny_spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--calibrate: .* and there are none"):
        build(tiny_spec, "float16", tmp_path / "engine")


@pytest.mark.parametrize("precision", EIGHTS)
def test_a_wrong_product_fails_the_build(
    tiny_spec: Spec, tmp_path: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    number_format = type(FORMATS[precision])
    right = number_format.emit_product
    wrong: Callable = lambda self, onnx, *rest: onnx.op("Mul", right(self, onnx, *rest), 1.001)  # noqa: E731
    monkeypatch.setattr(number_format, "emit_product", wrong)
    with pytest.raises(UserError, match=f"FAIL {precision}"):
        build(tiny_spec, precision, tmp_path / "engine")


def test_a_wrong_definition_fails_the_build(tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Int8, "grid", Grid(127, lambda torch, x: x.floor().clamp(-128, 127)))
    with pytest.raises(UserError, match="FAIL int8"):
        build(tiny_spec, "int8", tmp_path / "engine")


def test_what_is_larger_than_any_example_is_cut_off_alike(tiny_spec: Spec, tmp_path: Path) -> None:
    """All steps far too small: most of what products are given is beyond what 8 bits reach."""
    examples = [{name: ids[:, :1] for name, ids in example.items()} for example in probe_examples(tiny_spec)[:1]]
    for precision in EIGHTS:
        assert build(tiny_spec, precision, tmp_path / precision, examples=examples).passed


def change_manifest(folder: Path, change: dict[str, object]) -> None:
    path = folder / "engine.json"
    manifest = json.loads(path.read_text())
    manifest.pop("calibration", None)
    manifest |= change
    manifest["checksum"] = manifest_checksum(manifest)
    path.write_text(json.dumps(manifest))


def test_a_calibration_that_the_manifest_hides_or_makes_up_is_found(built, tmp_path: Path) -> None:
    shutil.copytree(built("int8")[0], tmp_path / "hidden")
    change_manifest(tmp_path / "hidden", {})
    shutil.copytree(built("int8", calibrated=False)[0], tmp_path / "made_up")
    change_manifest(tmp_path / "made_up", {"calibration": {"rule": "mse", "examples": 4}})
    for name in ("hidden", "made_up"):
        with pytest.raises(UserError, match=r"the calibrated weights differ from .*: decoder/0"):
            verify_engine(tmp_path / name)


@pytest.mark.parametrize("value", [np.float32(0), np.float32(-1), np.float32(np.inf), np.ones(2, np.float32)])
def test_a_step_that_cannot_be_is_refused(
    built, tiny_spec: Spec, tmp_path: Path, value: np.float32 | np.ndarray
) -> None:
    model = onnx.load(built("int8")[0] / MODEL)
    tensor = next(tensor for tensor in _tensors(model.graph) if tensor.name.endswith(INPUT_SCALE))
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(value), tensor.name))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="must be a positive float32"):
        read_input_scales(tmp_path / "model.onnx", tiny_spec.precisions())
