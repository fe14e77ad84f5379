"""What a certificate sees: a ban hides no other logit, and weights behind gates of zero are drawn again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify import Certificate, Stage
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.certify.seen import redraw, seen_weights
from xformc.compiler.graph.rules import to_onnx
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.certificate import read_certificate
from xformc.format.document import Document

GPT = """\
extends: gpt
sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 40, max_positions: 64, dropout: 0.0}
train: {max_length: 64}
"""
GATED = """\
blocks:
  feed_forward:
    do:
      inner: {linear: d_ff}
      active: gelu
      output: {linear: d_model}
      nothing: {scale: 0}
      gate: {linear: d_model}
      gated: {times: {by: output}}
"""
ZERO_HEAD = "model: {logits: {do: {nothing: {scale: 0}, result: {linear: vocabulary}}}}\ntie: []\n"
INFINITE = """\
blocks:
  feed_forward:
    do: {inner: {linear: d_ff}, below: {shift: -1.0e6}, root: sqrt, output: {linear: d_model}}
"""


@pytest.fixture
def gpt(tmp_path: Path):
    def load(rest: str) -> Spec:
        (tmp_path / "model.yaml").write_text(GPT + rest, encoding="utf-8")
        return load_spec(tmp_path / "model.yaml")

    return load


def test_a_ban_hides_no_other_difference() -> None:
    logits = np.array([[1.0, 2.0, -1e9, 0.5], [0.1, -0.2, 0.3, 20.0]], np.float32)
    for row, column in ((0, 0), (1, 1)):
        found = logits.copy()
        found[row, column] += 0.01
        assert difference(found, logits) >= 0.0004
    assert difference(logits * np.float32(1 + 1e-6), logits) < 1e-5
    assert difference(np.full((1, 5000), 1e-4), np.full((1, 5000), 2e-4), 1 / 5000) == pytest.approx(0.5)


def test_a_model_that_bans_a_token_is_built_and_its_other_logits_are_compared(
    gpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gpt("model: {logits: {do: {result: {linear: vocabulary}}}}\ntie: []\n")
    arrays = {name: value.copy() for name, value in TorchModule(compile_engine(spec).graph).arrays().items()}
    arrays["logits/result/bias"][5] = -1e9
    assert build_engine(spec, arrays, None, "portable", tmp_path / "engine").passed
    right = to_onnx.of(LayerNorm(1e-6))
    wrong = replace(LayerNorm(1e-6), epsilon=0.1)
    monkeypatch.setitem(to_onnx._entries, "layer_norm", lambda op, node, *rest: right(wrong, node, *rest))
    with pytest.raises(UserError, match=r"FAIL forward .* first difference: layer_norm"):
        build_engine(spec, arrays, None, "portable", tmp_path / "engine")


def test_a_number_that_is_not_finite_is_an_infinite_difference() -> None:
    for number in (np.nan, np.inf):
        assert difference(np.array([1.0, number]), np.array([1.0, number])) == np.inf


def test_weights_behind_a_gate_of_zero_are_seen_once_it_is_drawn(gpt) -> None:
    program = compile_engine(gpt(GATED))
    module, probes = TorchModule(program.graph).eval(), make_probes(program)
    behind, count = 2, seen_weights(module, probes, 1e-4)[1]
    assert seen_weights(module, probes, 1e-4) == (count - behind - 1, count)
    redraw(module, program, 1e-4, 0)
    assert seen_weights(module, probes, 1e-4) == (count - 1, count)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_head_that_begins_at_zero_is_built_and_says_what_it_sees(gpt, tmp_path: Path) -> None:
    certificate = build_engine(gpt(ZERO_HEAD), None, None, "portable", tmp_path / "engine")
    assert certificate.passed and "sees 0 of" in certificate.lines()[0]
    content = json.loads((tmp_path / "engine" / "certificate.json").read_text())
    assert content["stages"][0]["seen"]["weights"] == 0
    assert read_certificate(Document("certificate.json", content)).stages == certificate.stages


def test_a_stage_that_sees_all_weights_does_not_say_so() -> None:
    stage = Stage("forward", "logits", 0.0, 1e-4, seen=(7, 7))
    assert "sees" not in Certificate((stage,), "today").lines()[0]


def test_a_value_that_is_not_finite_in_pytorch_is_a_fault_of_the_spec(gpt, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        build_engine(gpt(INFINITE), None, None, "portable", tmp_path / "engine")
    assert "first value that is not finite, in PyTorch too: unary -> decoder/0/feed_forward/root" in error.value.message
    assert "model.yaml:6:63" in error.value.message
    assert error.value.hint == "change the spec at this place so that its values stay finite"


def test_weights_that_decide_nothing_are_no_fault_of_xformc(gpt, tmp_path: Path) -> None:
    spec = gpt("")
    arrays = {name: value * 0 for name, value in TorchModule(compile_engine(spec).graph).arrays().items()}
    with pytest.raises(UserError, match="no draw is beyond rounding") as error:
        build_engine(spec, arrays, None, "portable", tmp_path / "engine")
    assert error.value.hint == "train the model further, or build with other weights (--weights)"
