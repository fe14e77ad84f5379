"""Engines with quantized weights build, certify and verify; wrong products, searches or claims fail."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.runtime.kernel_session import kernel_library
from tests.small_specs import small
from tests.task_specs import write_task
from tests.verified import assert_repeats
from xformc.compiler.backends.onnx import initializers
from xformc.compiler.backends.onnx.initializers import _tensors
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import Stage, engine_parameters, verify_engine
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize import int8
from xformc.compiler.quantize.halves import Float16
from xformc.compiler.quantize.int8 import Int8
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.manifest import manifest_checksum
from xformc.format.names import MODEL
from xformc.format.precision import Precision
from xformc.format.targets import Target

SEARCH = [
    *("forward", "step", "scores", "attention", "greedy", "beam", "batch"),
    *("controls", "edits", "defaults", "samples"),
]
IN_FIXED_SHAPES = ["forward", "step", "greedy", "beam", "batch", "whole"]
ROUNDED = ["results", "alone"]
LOSSY: tuple[Precision, ...] = ("float16", "bfloat16", "int8", "int4")


def build(spec: Spec, target: Target, precision: Precision | None, out: Path, **more):
    return build_engine(spec, None, None, target, out, rounding=Rounding(precision, **more))


@pytest.mark.parametrize("target", ["portable", "cpu", "native"])
@pytest.mark.parametrize("precision", LOSSY)
def test_each_precision_builds_and_verify_repeats_it(
    tiny_spec: Spec, tmp_path: Path, precision: Precision, target: Target
) -> None:
    if target == "native":
        kernel_library()
    built = build(tiny_spec, target, precision, tmp_path / "engine")
    approximate = precision in ("bfloat16", "int8") or (precision == "int4" and target != "portable")
    assert built.passed
    searches = [*SEARCH[:7], *(["refill"] if target == "native" else []), *SEARCH[7:]]
    own = [precision, *ROUNDED, "texts"] if approximate else []
    assert [stage.name for stage in built.stages] == [*searches, *own]
    manifest = json.loads((tmp_path / "engine" / "engine.json").read_text())
    assert manifest["precision"] == precision
    assert [item.name for item in built.measured] == ["agrees"]
    if target == "portable" or (target == "native" and not approximate):  # verified as the others are
        return
    assert not assert_repeats(tmp_path / "engine", built).measured


@pytest.mark.parametrize(("precision", "stages"), [("bfloat16", ["half", *ROUNDED]), ("int8", [])])
def test_engines_for_gpus_are_certified_in_their_own_numbers(
    tiny_spec: Spec, tmp_path: Path, precision: Precision, stages: list[str]
) -> None:
    built = build(tiny_spec, "cuda", precision, tmp_path / "engine")
    assert built.passed and [stage.name for stage in built.stages] == [*IN_FIXED_SHAPES, *stages]
    assert_repeats(tmp_path / "engine", built)


INTEGERS = ["rnn_language_model", "lstm_language_model", "gru_classifier", "bilstm_tagger", "seq2seq", "sparse_experts"]
"""Specs whose products in int8 stand among nodes of ONNX that are joined."""


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "int8") for name in INTEGERS), *(("seq2seq_attention", one) for one in LOSSY)]
)
def test_products_among_other_nodes_are_certified(name: str, precision: Precision, tmp_path: Path) -> None:
    kernel_library()
    assert build(small(name), "native", precision, tmp_path / "engine").passed


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_scores_with_a_penalty_by_default_are_certified(precision: Precision, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(
        "extends: transformer_base\nsizes: {layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}\n"
        "decode: {coverage_penalty: 0.3}\n"
    )
    assert build(load_spec(tmp_path / "model.yaml"), "cpu", precision, tmp_path / "engine").passed


def test_a_wrong_product_in_16_bits_fails_the_build(
    tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Float16.emit_product
    wrong: Callable = lambda self, onnx, *rest: onnx.op("Mul", right(self, onnx, *rest), 1.01)  # noqa: E731
    monkeypatch.setattr(Float16, "emit_product", wrong)
    with pytest.raises(UserError, match="FAIL half"):
        build(tiny_spec, "cuda", "float16", tmp_path / "engine")


SPECS = ["transformer_pre_norm", "t5", "seq2seq_attention", "llama", "lstm_language_model", "bilstm_tagger", "vit"]


@pytest.mark.parametrize("name", SPECS)
def test_shipped_specs_build_with_rounded_weights(name: str, tmp_path: Path) -> None:
    place = SPECS.index(name)
    target, precision = ("portable", "int8") if place % 2 else ("cpu", LOSSY[place // 2])
    assert build(small(name), target, precision, tmp_path / "engine").passed
    assert verify_engine(tmp_path / "engine").passed


@pytest.mark.parametrize("task", ["language_model", "tagging", "frames", "images", "graph"])
def test_every_task_builds_with_int8(task: str, tmp_path: Path) -> None:
    spec = write_task(tmp_path, task)
    certificate = build(spec, "portable", "int8", tmp_path / "engine")
    assert certificate.passed and [stage.name for stage in certificate.stages][-3:] == ["int8", *ROUNDED]


def test_rounded_engines_are_smaller(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text(
        "extends: transformer_base\nsizes: {layers: 1, d_model: 64, d_ff: 256, heads: 2, vocabulary: 2000}\n"
    )
    sizes = dict[str, int]()
    for precision in ("float32", *LOSSY):
        build(load_spec(path), "cpu", precision, tmp_path / precision)
        sizes[precision] = sum(file.stat().st_size for file in (tmp_path / precision).glob("model.onnx*"))
    weights = sizes["float32"]
    assert sizes["float16"] < 0.6 * weights and sizes["bfloat16"] < 0.6 * weights
    assert sizes["int8"] < 0.4 * weights and sizes["int4"] < 0.3 * weights


def test_overrides_say_what_each_weight_is(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        "extends: transformer_base\nsizes: {layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}\n"
        'precision: {encoder: fp16, logits: fp32, "decoder/*/feed_forward": int4}\n'
    )
    spec = load_spec(path)
    certificate = build(spec, "cpu", "int8", tmp_path / "engine")
    assert certificate.passed and {"int8", "int4"} <= {stage.name for stage in certificate.stages}
    stored = {tensor.name: tensor.data_type for tensor in _tensors(onnx.load(tmp_path / "engine" / MODEL).graph)}
    kinds = onnx.TensorProto
    assert stored["encoder/embed/embedding/weight"] == kinds.FLOAT, "logits are tied to it"
    assert stored["encoder/0/feed_forward/inner/weight"] == kinds.FLOAT16
    assert stored["decoder/1/feed_forward/inner/weight.blocks"] == kinds.UINT8
    assert stored["decoder/0/cross_attention/key/weight"] == kinds.INT8
    others = {kind for name, kind in stored.items() if name.endswith(("/bias", "/gain", "/offset"))}
    assert others == {kinds.FLOAT}
    assert verify_engine(tmp_path / "engine").passed


def test_the_spec_alone_can_ask_for_rounding(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        "extends: transformer_base\nsizes: {layers: 1, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}\n"
        "precision: {default: bf16}\n"
    )
    build(load_spec(path), "portable", None, tmp_path / "engine")
    assert json.loads((tmp_path / "engine" / "engine.json").read_text())["precision"] == "bfloat16"
    assert verify_engine(tmp_path / "engine").passed


@pytest.mark.parametrize(("target", "suffix"), [("portable", ""), ("cpu", ".blocks")])
def test_the_tied_table_is_in_the_file_once(
    tiny_spec: Spec, tmp_path: Path, target: Target, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    build(tiny_spec, target, "int4", tmp_path / "engine")
    tensors = list(_tensors(onnx.load(tmp_path / "engine" / MODEL, load_external_data=False).graph))
    table = "encoder/embed/embedding/weight"
    found = {tensor.name for tensor in tensors if tensor.name.startswith(table)}
    assert {re.sub(r"\.\d+$", "", name) for name in found} == {table + suffix, table + ".scale"}
    places = {
        entry.value
        for tensor in tensors
        for entry in tensor.external_data
        if tensor.name in found and entry.key == "offset"
    }
    assert len(places) == 2 and not any(tensor.name.startswith("logits") for tensor in tensors)


def test_engine_parameters_are_the_rounded_ones(tiny_spec: Spec, tmp_path: Path) -> None:
    build(tiny_spec, "cpu", "int8", tmp_path / "rounded")
    build(tiny_spec, "cpu", None, tmp_path / "exact")
    graph = compile_engine(tiny_spec).graph
    rounded_, exact = (engine_parameters(graph, tmp_path / name / MODEL) for name in ("rounded", "exact"))
    weight = "decoder/0/feed_forward/inner/weight"
    step = np.abs(exact[weight]).max(1, keepdims=True) / 127
    assert (
        np.abs(rounded_[weight] - exact[weight]).max() > 0
        and (np.abs(rounded_[weight] - exact[weight]) <= 0.51 * step).all()
    )
    assert np.array_equal(rounded_["decoder/0/feed_forward/inner/bias"], exact["decoder/0/feed_forward/inner/bias"])


def test_a_wrong_rounding_fails_the_build(tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = int8._emit_scale
    monkeypatch.setattr(int8, "_emit_scale", lambda onnx, rows: onnx.op("Mul", right(onnx, rows), 1.02))
    with pytest.raises(UserError, match="FAIL int8"):
        build(tiny_spec, "portable", "int8", tmp_path / "engine")


def test_a_wrong_table_fails_the_build(tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Int8.emit_rows
    wrong: Callable = lambda self, onnx, *rest: onnx.op("Mul", right(self, onnx, *rest), 1.5)  # noqa: E731
    monkeypatch.setattr(Int8, "emit_rows", wrong)
    with pytest.raises(UserError, match="FAIL results"):
        build(tiny_spec, "portable", "int8", tmp_path / "engine")


def test_a_manifest_with_another_precision_is_found(tiny_spec: Spec, tmp_path: Path) -> None:
    build(tiny_spec, "portable", "int8", tmp_path / "engine")
    path = tmp_path / "engine" / "engine.json"
    manifest = json.loads(path.read_text())
    manifest["precision"] = "bfloat16"
    manifest["checksum"] = manifest_checksum(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"is int8 in the model, but bfloat16 by"):
        verify_engine(tmp_path / "engine")


def test_a_judge_sees_both_engines_and_its_stage_is_recorded(tiny_spec: Spec, tmp_path: Path) -> None:
    seen = list[str]()

    def judge(exact: Path, ours: Path) -> list[Stage]:
        seen.extend(json.loads((folder / "engine.json").read_text())["precision"] for folder in (exact, ours))
        return [Stage("bleu", "BLEU", 0.1, 0.3)]

    certificate = build(tiny_spec, "portable", "int8", tmp_path / "engine", judge=judge)
    assert seen == ["float32", "int8"] and certificate.stages[-1].name == "bleu"
    written = json.loads((tmp_path / "engine" / "certificate.json").read_text())
    assert written["stages"][-1]["value"] == 0.1 and written["measured"][0]["name"] == "agrees"
    assert verify_engine(tmp_path / "engine").passed


def test_a_judge_that_refuses_leaves_nothing(tiny_spec: Spec, tmp_path: Path) -> None:
    def judge(exact: Path, ours: Path) -> list[Stage]:
        raise UserError("too much is lost")

    with pytest.raises(UserError, match="too much is lost"):
        build(tiny_spec, "portable", "int8", tmp_path / "engine", judge=judge)
    assert not list(tmp_path.glob("*engine*"))


def test_a_weight_that_fp16_cannot_hold_is_named(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = {name: value.copy() for name, value in make_subject().module.arrays().items()}
    arrays["encoder/0/feed_forward/inner/weight"][0, 0] = 1e6
    with pytest.raises(
        UserError, match="encoder/0/feed_forward/inner/weight: a weight is 1e\\+06, above the float16 maximum"
    ):
        build_engine(tiny_spec, arrays, None, "portable", tmp_path / "engine", rounding=Rounding("float16"))


def test_weights_that_are_not_finite_fail_in_every_precision(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = {name: value.copy() for name, value in make_subject().module.arrays().items()}
    arrays["encoder/0/feed_forward/inner/weight"][0, 0] = np.nan
    for precision in LOSSY:
        with pytest.raises(UserError, match="not finite"):
            build_engine(tiny_spec, arrays, None, "cpu", tmp_path / "engine", rounding=Rounding(precision))
