"""Engines of every task build, certify and verify; wrong ones fail with a place."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from task_specs import SPECS, write_task

from tests.programs import with_inputs
from xformc.compiler.build import build_engine
from xformc.compiler.certify import verify_engine
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.graph.rules import to_onnx
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import read_manifest
from xformc.specs import SHIPPED

LABELS = ["forward", "labels", "batch"]
STAGES = {
    "language_model": [
        "forward",
        "step",
        "extend",
        "scores",
        "greedy",
        "sample",
        "edits",
        "batch",
        "stream",
        "draft",
        "refill",
        "beams",
    ],
    "tagging": LABELS,
    "frames": LABELS,
    "images": LABELS,
    "graph": LABELS,
}
INPUTS = {
    "language_model": ["prompt", "seed"],
    "tagging": ["words"],
    "frames": ["frames", "frames_mask"],
    "images": ["image"],
    "graph": ["nodes", "links"],
}


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("name", SPECS)
def test_task_is_built_certified_and_verified(tmp_path: Path, name: str, target: Target) -> None:
    spec, out = write_task(tmp_path, name), tmp_path / "engine"
    built = build_engine(spec, None, None, target, out)
    assert built.passed and [stage.name for stage in built.stages] == STAGES[name]
    assert [stage.name for stage in verify_engine(out).stages] == [*STAGES[name], "models"]
    model = onnx.load(out / "model.onnx", load_external_data=False)
    defaults = {tensor.name for tensor in model.graph.initializer}
    assert [value.name for value in model.graph.input if value.name not in defaults] == INPUTS[name]


@pytest.mark.parametrize("name", SPECS)
def test_engine_records_its_task(tmp_path: Path, name: str) -> None:
    spec = write_task(tmp_path, name)
    build_engine(spec, None, None, "portable", tmp_path / "engine")
    manifest, program = read_manifest(tmp_path / "engine"), compile_engine(spec)
    assert (manifest.task, manifest.inputs) == (spec.task, dict(program.inputs))
    count = next(iter(program.results.values())).width
    assert manifest.labels == (tuple(map(str, range(count))) if manifest.decoding == "forward" else None)
    assert manifest.positions == {"tagging": "words", "frames": "frames", "graph": "nodes"}.get(name)


def test_labels_are_named_in_the_engine(tmp_path: Path) -> None:
    names = ["cat", "dog", "hen", "owl"]
    build_engine(write_task(tmp_path, "images"), None, None, "portable", tmp_path / "engine", labels=names)
    assert read_manifest(tmp_path / "engine").labels == tuple(names)


@pytest.mark.parametrize("names", [["cat", "dog", "hen"], ["cat", "dog", "hen", "hen"]])
def test_labels_that_are_not_those_of_the_model_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(UserError) as error:
        build_engine(write_task(tmp_path, "images"), None, None, "portable", tmp_path / "engine", labels=names)
    assert error.value.message == "the model has 4 labels, found 3 different names"
    assert error.value.hint == "set the size labels of the spec to the number of labels in labels.txt"


def test_label_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    names = ["cat", "dog", "hen", "\x1b"]
    with pytest.raises(UserError, match="the label 3 has unprintable characters"):
        build_engine(write_task(tmp_path, "images"), None, None, "portable", tmp_path / "engine", labels=names)


def test_wrong_labels_in_the_manifest_are_found_by_verify(tmp_path: Path) -> None:
    from xformc.format.manifest import manifest_checksum

    build_engine(write_task(tmp_path, "images"), None, None, "portable", tmp_path / "engine")
    path = tmp_path / "engine" / "engine.json"
    manifest = json.loads(path.read_text())
    labels = manifest["results"]["labels"]
    labels["labels"].pop()
    labels["axes"] = {"labels": 3}
    path.write_text(json.dumps({**manifest, "checksum": manifest_checksum(manifest)}))
    with pytest.raises(UserError, match=r"labels is 3 in engine\.json, 4 by the spec"):
        verify_engine(tmp_path / "engine")


def test_wrong_rule_is_named_for_a_labelling_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = to_onnx._entries["unary"]

    def wrong(op, node, emitter, inputs):
        (name,) = right(op, node, emitter, inputs)
        return (emitter.op("Mul", name, 1.01),)

    monkeypatch.setitem(to_onnx._entries, "unary", wrong)
    with pytest.raises(UserError) as error:
        build_engine(write_task(tmp_path, "images"), None, None, "portable", tmp_path / "engine")
    assert "FAIL forward" in error.value.message
    assert "first difference: unary -> hidden/relu" in error.value.message


def test_padding_that_leaks_into_a_result_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xformc.compiler.spec.writer.Writer._padding", lambda *_: 1_000_000)
    with pytest.raises(UserError, match="FAIL batch"):
        build_engine(write_task(tmp_path, "tagging"), None, None, "portable", tmp_path / "engine")


def test_probes_hold_each_kind_of_input(tmp_path: Path) -> None:
    program = compile_engine(write_task(tmp_path, "frames"))
    probes = make_probes(program)
    assert probes.feeds["frames"].shape == (4, 17, 6)
    assert probes.feeds["frames_mask"].sum(-1).tolist() == [1, 4, 9, 17] == probes.real.sum(-1).tolist()
    edges = replace(program.inputs["frames"], kind="edges", axes={}, of="frames")
    with_edges = make_probes(with_inputs(program, {"edges": edges}))
    found = with_edges.feeds["edges"]
    assert found.shape == (4, 17, 17)
    assert all(found[row, place, place] for row, length in enumerate((1, 4, 9, 17)) for place in range(length))
    assert not found[1, 4:].any() and not found[1, :, 4:].any()


def test_probes_of_text_are_real_tokens_within_the_bound(tmp_path: Path) -> None:
    program = compile_engine(write_task(tmp_path, "language_model"))
    ids = make_probes(program).feeds["text"]
    assert ids[:, 0].tolist() == [2] * 4 and ids[3, 1:].min() >= 4 and ids.max() < 80
    short = {"text": replace(program.inputs["text"], longest=5)}
    assert make_probes(with_inputs(program, short)).feeds["text"].shape == (4, 5)


def test_inputs_may_have_the_names_of_anything_in_onnx(tmp_path: Path) -> None:
    text = SPECS["images"].replace("image", "Softmax_1")
    (tmp_path / "names.yaml").write_text(text)
    build_engine(load_spec(tmp_path / "names.yaml"), None, None, "portable", tmp_path / "engine")
    assert np.all([item == "Softmax_1" for item in read_manifest(tmp_path / "engine").inputs])


@pytest.mark.parametrize(("name", "seen"), [("local_attention", 32), ("bytenet", 33), ("gpt", 0)])
def test_probes_go_beyond_what_a_window_sees(name: str, seen: int) -> None:
    program = compile_engine(load_spec(SHIPPED / f"{name}.yaml"))
    feeds = make_probes(program).feeds
    assert all(array.shape[1] >= max(seen + 2, 11) for array in feeds.values())
