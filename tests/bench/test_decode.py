"""The decoding benchmark: its timings, and the floor."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

pytest.importorskip("ctranslate2")

from benchmarks.decode import cases, engines
from benchmarks.decode.__main__ import main
from benchmarks.decode.floor import FLOOR, Floor
from tests.runtime.kernel_session import kernel_library
from xformc.format.precision import Precision

TINY = "extends: transformer_base\nsizes: {vocabulary: %d, d_model: 16, d_ff: 24, heads: 2, layers: 2}\n"


def test_the_floor_is_every_product_with_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.MODELS, "small128", TINY)
    spec = engines.make_spec("small128", tmp_path, vocabulary=50)
    weights = engines.fresh_weights(spec, "portable")
    engines.write_engine(spec, weights, "float32", "portable", tmp_path / "engine")
    floor = Floor(tmp_path / "engine", "portable", 1)
    graph = onnx.load(tmp_path / "engine" / FLOOR).graph
    shapes_of = {tensor.name: tensor.dims for tensor in graph.initializer if len(tensor.dims) == 2}
    bodies = [loop.attribute[0].g for loop in graph.node]
    matrices = [[shapes_of[name] for node in body.node for name in node.input if name in shapes_of] for body in bodies]
    found = [sum(rows * columns for rows, columns in shapes) for shapes in matrices]
    size, inner, vocabulary = 16 * 16, 16 * 24, 16 * 50
    layers, attentions = 2, 4
    prepare = layers * (attentions * size + 2 * inner) + layers * 2 * size
    step = layers * (attentions * size + 2 * size + 2 * inner) + vocabulary
    assert found == [prepare, step]
    floor.run(batch=3, source=5, beam=2, length=4)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_floor_makes_all_logits_some_tokens_at_a_time(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_library()
    monkeypatch.setitem(cases.MODELS, "small128", TINY)
    monkeypatch.setattr("benchmarks.decode.floor._TOKENS", 64)
    spec = engines.make_spec("small128", tmp_path, vocabulary=150)
    weights = engines.fresh_weights(spec, "native")
    engines.write_engine(spec, weights, precision, "native", tmp_path / "engine")
    floor = Floor(tmp_path / "engine", "native", 1)
    body = onnx.load(tmp_path / "engine" / FLOOR).graph.node[1].attribute[0].g
    projects = [node for node in body.node if node.op_type == "Project"]
    sizes = [next(list(item.ints) for item in node.attribute if item.name == "sizes") for node in projects]
    assert sizes[-3:] == [[64], [64], [22]]
    assert {item.s.decode() for item in projects[-1].attribute if item.name == "precision"} == {precision}
    floor.run(batch=3, source=5, beam=2, length=4)


def test_rows_are_chosen_by_the_beginnings_of_their_names() -> None:
    assert [row.name for row in cases.chosen_rows(["big", "base-greedy"])] == ["base-greedy-int8", "big-beam4-int8"]
    assert len(cases.chosen_rows([])) == len(cases.ROWS)
    with pytest.raises(SystemExit, match="no such row"):
        cases.chosen_rows(["huge"])


def test_both_find_the_same_and_the_pictures_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cases.MODELS, "small128", TINY)
    monkeypatch.setattr(engines, "VOCABULARY", 60)
    monkeypatch.setattr("benchmarks.decode.speed.VOCABULARY", 60)
    monkeypatch.setattr(engines.make_spec, "__defaults__", (60,))
    chosen = ["--rows", "small128-beam4-float32", "--batches", "1", "8", "--lengths", "5", "--rounds", "1"]
    out = ["--target", "cpu", "--threads", "1", "--json", str(tmp_path / "found.json"), "--plots", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["decode", *chosen, *out])
    main()
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    assert [(one["batch"], one["equal"]) for one in found["timings"]] == [(1, 1), (8, 8)]
    assert all(one["ratio"] > 0 and one["of_the_floor"] > 0 for one in found["timings"])
    [footprint] = found["footprints"]
    assert footprint["xformc"]["peak"] > footprint["xformc"]["before"]
    assert {path.name for path in tmp_path.glob("*.png")} == {
        f"decode_{name}.png" for name in ("tokens", "steps", "size", "peak", "load", "disk")
    }
    assert "small128-beam4-float32, 1 threads, cpu" in capsys.readouterr().out
