"""The certificate: a correct engine passes, a wrong rule fails the build and is named, and verify repeats it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_engine import write_manifest

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import Certificate, Stage, verify_engine
from xformc.compiler.certify.difference import apart
from xformc.compiler.certify.reference_sampling import Followed, follow
from xformc.compiler.certify.reference_search import Found, log_probabilities, score, search
from xformc.compiler.graph.rules import OnnxRule, Table, to_onnx
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.inputs import Vocabularies
from xformc.format.manifest import SampleOptions, SearchOptions, manifest_checksum
from xformc.format.operators import DOMAIN, OPERATORS
from xformc.format.reader import read_manifest
from xformc.format.targets import Target
from xformc.format.tokens import SpecialTokens
from xformc.runtime.session import Session
from xformc.verification import verify_parts

STAGES = [
    *("forward", "step", "scores", "attention", "greedy", "beam", "batch", "controls", "edits", "defaults", "samples")
]


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_build_certifies_and_verify_repeats_it(tiny_spec: Spec, tmp_path: Path, target: Target) -> None:
    built = build_engine(tiny_spec, None, None, target, tmp_path / "engine")
    assert built.passed and [stage.name for stage in built.stages] == STAGES
    verified = verify_engine(tmp_path / "engine")
    assert verified.passed and [stage.name for stage in verified.stages] == [*STAGES, "models"]
    written = json.loads((tmp_path / "engine" / "certificate.json").read_text())
    assert written["passed"] and [stage["name"] for stage in written["stages"]] == STAGES
    assert all(stage["value"] <= stage["bound"] for stage in written["stages"])


def failed(folder: Path) -> list[str]:
    """The stages of an engine that do not pass, whatever its hashes were."""
    write_manifest(folder, json.loads((folder / "engine.json").read_text()))
    certificate = verify_engine(folder)
    return [stage.name for stage in certificate.stages if not stage.passed]


def test_verify_sees_other_defaults_of_the_model(tiny_spec: Spec, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder).passed
    assert failed(folder) == []
    for name, value in (("length_penalty", np.float32(1.9)), ("n_best", np.int64(2)), ("beam_size", np.int64(1))):
        whole = (folder / "model.onnx").read_bytes()
        model = onnx.load(folder / "model.onnx")
        (stored,) = (one for one in model.graph.initializer if one.name == name)
        before = onnx.numpy_helper.to_array(stored)
        stored.CopyFrom(onnx.numpy_helper.from_array(np.full_like(before, value), name))
        onnx.save(model, folder / "model.onnx")
        assert failed(folder) == ["defaults"], name
        (folder / "model.onnx").write_bytes(whole)


@pytest.mark.parametrize(
    ("file", "kind", "other", "stage"),
    [("samples.onnx", "Less", "GreaterOrEqual", "samples"), ("model.onnx", "Exp", "Identity", "controls")],
)
def test_verify_sees_faults_of_options_that_stand_alone(
    tiny_spec: Spec, tmp_path: Path, file: str, kind: str, other: str, stage: str
) -> None:
    """Filters without `top_p`, and a biased prefix without groups: beside these, options take another way."""
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder).passed
    model = onnx.load(folder / file)
    way = "else_branch" if stage == "samples" else "then_branch"
    graphs = [graph for name, graph in branches(model.graph) if name == way]
    node = next(node for graph in graphs for node in graph.node if node.op_type == kind)
    node.op_type = other
    onnx.save(model, folder / file)
    assert failed(folder) == [stage]


@pytest.mark.parametrize("file", ["scores.onnx", "samples.onnx"])
def test_verify_sees_faults_beside_an_int8_search(tiny_spec: Spec, tmp_path: Path, file: str) -> None:
    """The stages of float32 are of models that are made for them; these are the engine's own."""
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder, rounding=Rounding("int8")).passed
    assert failed(folder) == []
    model = onnx.load(folder / file)
    stored = next(one for one in model.graph.initializer if one.name == "decoder/0/feed_forward/layer_norm/gain")
    stored.CopyFrom(onnx.numpy_helper.from_array(-2 * onnx.numpy_helper.to_array(stored), stored.name))
    onnx.save(model, folder / file)
    assert failed(folder) == ["texts"]


def test_verify_sees_what_no_stage_of_a_quantized_engine_computes(tiny_spec: Spec, tmp_path: Path) -> None:
    """A search with other than its defaults is checked on a model in float32."""
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder, rounding=Rounding("int8")).passed
    assert failed(folder) == []
    model = onnx.load(folder / "model.onnx")
    node = next(
        node for name, graph in branches(model.graph) if name == "then_branch" for node in graph.node
        if node.op_type == "Exp"
    )  # fmt: skip
    node.op_type = "Identity"
    onnx.save(model, folder / "model.onnx")
    assert failed(folder) == ["models"]
    last = verify_engine(folder).stages[-1]
    assert last.value == 1
    assert last.detail == f"(model.onnx: the node of {node.output[0]} (Identity))"


def test_verify_sees_a_model_that_the_compiler_would_not_write(tiny_spec: Spec, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder).passed
    (folder / "beams.onnx").write_bytes((folder / "samples.onnx").read_bytes())
    assert failed(folder) == ["models"]
    assert verify_engine(folder).stages[-1].detail == "(beams.onnx: the compiler writes no such file)"


def branches(graph: Any) -> Iterator[tuple[str, Any]]:
    """The graphs inside a graph, by the names of their attributes."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.name, attribute.g
                yield from branches(attribute.g)


def test_a_certificate_that_failed_is_json() -> None:
    fields = Certificate((Stage("forward", "logits", nan, 1e-4),), "2026-01-01").fields()
    found = json.loads(json.dumps(fields, allow_nan=False))
    assert (found["passed"], found["stages"][0]["passed"], found["stages"][0]["value"]) == (False, False, None)


def test_verify_says_which_stages_it_has_not_repeated(tiny_spec: Spec, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    assert build_engine(tiny_spec, None, None, "portable", folder).passed
    (folder / "samples.onnx").unlink()
    write_manifest(folder, json.loads((folder / "engine.json").read_text()))
    certificate, left_out = verify_parts(folder, lambda _: None)
    assert certificate.passed
    assert (
        left_out
        == "not repeated: samples; the engine lacks the models that they check, or the weights before quantization"
    )


def test_verify_refuses_a_manifest_that_is_not_of_its_spec(tiny_spec: Spec, tmp_path: Path) -> None:
    spec = replace(tiny_spec, decode=tiny_spec.decode.model_copy(update={"prefix": [7, 7]}))
    assert build_engine(spec, None, None, "portable", tmp_path / "engine").passed
    path = tmp_path / "engine" / "engine.json"
    manifest = json.loads(path.read_text())
    manifest["inputs"]["source"]["vocabulary"], manifest["prefix"] = 90, [9]
    manifest["checksum"] = manifest_checksum(manifest)
    path.write_text(json.dumps(manifest))
    wrong = r"inputs is .*vocabulary=90.* in engine.json, .*vocabulary=40.* by the spec"
    with pytest.raises(UserError, match=wrong + r".*\n?.*prefix is \(9,\) in engine.json, \(7, 7\) by the spec"):
        verify_engine(tmp_path / "engine")
    with pytest.raises(UserError, match=r"--target cuda has no search with decode\.prefix"):
        build_engine(spec, None, None, "cuda", tmp_path / "cuda")


def test_build_for_portable_uses_standard_operators_only(tiny_spec: Spec, tmp_path: Path) -> None:
    expected: list[tuple[Target, set[str]]] = [("portable", {""}), ("cpu", {"", "com.microsoft"})]
    for target, domains in expected:
        build_engine(tiny_spec, None, None, target, tmp_path / target)
        model = onnx.load(tmp_path / target / "model.onnx")
        assert {entry.domain for entry in model.opset_import} == domains


def test_a_native_engine_imports_and_records_the_version_of_its_operators(tiny_spec: Spec, tmp_path: Path) -> None:
    kernel_library()
    build_engine(tiny_spec, None, None, "native", tmp_path / "engine")
    imports = {entry.domain: entry.version for entry in onnx.load(tmp_path / "engine" / "model.onnx").opset_import}
    assert imports[DOMAIN] == read_manifest(tmp_path / "engine").operators == OPERATORS
    assert verify_engine(tmp_path / "engine").passed


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> Callable[[Table[OnnxRule], str, OnnxRule], None]:
    def install(table: Table[OnnxRule], kind: str, rule: OnnxRule) -> None:
        monkeypatch.setitem(table._entries, kind, rule)

    return install


def test_wrong_rule_fails_the_build_and_is_named(tiny_spec: Spec, tmp_path: Path, broken_rule) -> None:
    right = to_onnx._entries["scale"]

    def wrong(op, node, onnx, inputs):
        return right(replace(op, factor=op.factor * 1.01), node, onnx, inputs)

    broken_rule(to_onnx, "scale", wrong)
    with pytest.raises(UserError) as error:
        build_engine(tiny_spec, None, None, "portable", tmp_path / "engine")
    assert "FAIL forward" in error.value.message
    assert "first difference: scale -> encoder/embed/scale" in error.value.message
    assert ".yaml:" in error.value.message, "the place in the spec"
    assert not any(tmp_path.glob("*engine*"))


def test_wrong_step_fails_the_build_and_is_named(tiny_spec: Spec, tmp_path: Path, broken_rule) -> None:
    right = to_onnx._entries["append"]

    def wrong(op, node, onnx, inputs):
        cache, new = inputs
        return right(op, node, onnx, (cache, onnx.op("Mul", new, 1.01)))

    broken_rule(to_onnx, "append", wrong)
    with pytest.raises(UserError) as error:
        build_engine(tiny_spec, None, None, "portable", tmp_path / "engine")
    assert "FAIL step" in error.value.message
    assert "first difference: attention -> decoder/0/causal_self_attention" in error.value.message


def test_wrong_search_fails_the_build(tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Vocabularies(written=SpecialTokens(begin=5))
    monkeypatch.setattr("xformc.compiler.pipeline.vocabularies_of", lambda *_: wrong)
    with pytest.raises(UserError, match="FAIL greedy"):
        build_engine(tiny_spec, None, None, "portable", tmp_path / "engine")


def test_search_that_does_not_end_where_it_should_fails_the_build(
    tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Session.run

    def run(self, feeds, *expected):
        return right(self, {name: value for name, value in feeds.items() if name != "end_token"}, *expected)

    monkeypatch.setattr(Session, "run", run)
    with pytest.raises(UserError, match="FAIL beam"):
        build_engine(tiny_spec, None, None, "portable", tmp_path / "engine")


def test_weights_that_are_all_zero_decide_nothing_and_fail(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = {name: value * 0 for name, value in make_subject().module.arrays().items()}
    with pytest.raises(UserError, match="FAIL greedy"):
        build_engine(tiny_spec, arrays, None, "portable", tmp_path / "engine")


def test_searches_with_one_close_choice_each_are_compared(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = make_subject().module.arrays()
    table = "encoder/embed/embedding/weight"
    small = {name: value * (0.02 if name == table else 1.0) for name, value in arrays.items()}
    beam = build_engine(tiny_spec, small, None, "portable", tmp_path / "engine").stages[5]
    assert beam.passed and "(8 searches, 0 beyond rounding and 8 equal with" in beam.detail


def test_an_end_token_that_ends_no_hypothesis_is_replaced(
    tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xformc.compiler.certify import translation_stages

    monkeypatch.setattr(translation_stages.Counter, "most_common", lambda self, count: [(0, 1)])
    beam = build_engine(tiny_spec, None, None, "portable", tmp_path / "engine").stages[3]
    assert beam.passed and "(0 ends)" not in beam.detail


def test_weights_that_are_not_finite_fail_the_build(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = {name: value.copy() for name, value in make_subject().module.arrays().items()}
    arrays["encoder/0/feed_forward/inner/weight"][0, 0] = np.nan
    match = "FAIL forward .* the weight encoder/0/feed_forward/inner/weight is not finite"
    with pytest.raises(UserError, match=match) as error:
        build_engine(tiny_spec, arrays, None, "portable", tmp_path / "engine")
    assert error.value.hint == "train the model further, or build with other weights (--weights)"


def test_build_replaces_an_engine_only_when_it_is_whole(tiny_spec: Spec, tmp_path: Path, broken_rule) -> None:
    out = tmp_path / "engine"
    build_engine(tiny_spec, None, None, "portable", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    broken_rule(to_onnx, "scale", lambda op, node, onnx, inputs: (onnx.op("Neg", *inputs),))
    with pytest.raises(UserError):
        build_engine(tiny_spec, None, None, "portable", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_learned_positions_bound_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "learned.yaml"
    path.write_text(
        "extends: transformer_base\nchoices: {positions: learned}\n"
        "sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 30, max_positions: 7}\ntrain: {max_length: 7}\n"
    )
    build_engine(load_spec(path), None, None, "portable", tmp_path / "engine")
    manifest = json.loads((tmp_path / "engine" / "engine.json").read_text())
    assert [item["longest"] for item in manifest["inputs"].values()] == [7, 7]
    assert verify_engine(tmp_path / "engine").passed


def test_certificate_without_a_number_does_not_pass() -> None:
    stage = Stage("forward", "", float("nan"), 1e-4)
    assert not stage.passed and not Certificate((stage,), "today").passed


def test_reference_search_of_width_1_takes_the_best_token() -> None:
    table = np.full((6, 6), -9.0, np.float32)
    table[2, 4], table[4, 5], table[5, 3] = 1.0, 1.0, 1.0

    def scorer(target):
        return table[target]

    found = search(scorer, 2, SearchOptions(1, 1, 0.6, 1.0, 50))
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == [(4, 5, 3)]
    expected = sum(float(log_probabilities(table[row])[column]) for row, column in ((2, 4), (4, 5), (5, 3)))
    assert found.hypotheses[0].score == pytest.approx(expected / (8 / 6) ** 0.6)


def test_score_is_the_papers() -> None:
    assert score(np.float32(-6.0), 7, SearchOptions(4, 1, 0.6, 1.0, 50)) == pytest.approx(-6.0 / 2.0**0.6)


def test_scores_are_compared_relative_to_large_ones() -> None:
    assert apart([-0.5, -40.0], [-0.5, -40.002], 1.0) == pytest.approx(0.002 / 40.002)
    assert apart(-0.5, -0.502, 1.0) == pytest.approx(0.002)
    assert apart(-0.5, -0.502, 20.0) == pytest.approx(0.0001)
    assert apart([-0.5, float("nan")], [-0.5, -1.0], 1.0) == apart(-np.inf, -1.0, 1.0) == float("inf")


def test_choices_between_large_logits_are_rounded_as_these_are() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    options = SearchOptions(2, 2, 0.6, 1.0, 2)

    def found(above: float) -> tuple[Found, Followed]:
        def scorer(texts: NDArray[np.int64]) -> NDArray[np.float32]:
            return logits[texts % 4] + np.float32(above)

        return search(scorer, 2, options), follow(scorer, [4], [5, 6], 0, SampleOptions(1.0, 0, 1.0, 2))

    (plain, drawn), (high, drawn_high) = found(0.0), found(50.0)
    assert [one.tokens for one in plain.hypotheses] == [one.tokens for one in high.hypotheses]
    assert plain.size < 4 and high.size == pytest.approx(50, abs=4)
    assert high.margin * high.size == pytest.approx(plain.margin * plain.size, abs=1e-4)
    assert drawn.size < 4 and drawn_high.size == pytest.approx(50, abs=4)
