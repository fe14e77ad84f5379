"""A kind of result that only this file knows is declared, trained, certified, run and scored."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.loss import Deviation
from xformc.compiler.results import kind as kinds
from xformc.compiler.results.kind import Declared, Kind, Outputs, is_result
from xformc.compiler.spec import load_spec
from xformc.format.results import Result, Setting
from xformc.runtime import load
from xformc.runtime.kinds import kind as values
from xformc.runtime.kinds.kind import Arrays, ResultKind
from xformc.trainer.build_run import BuildOptions, build_run
from xformc.trainer.data.columns import Column, Counts
from xformc.trainer.data.targets import target as targets
from xformc.trainer.data.targets.target import Cells, Names, Target, TargetKind, numbers_column
from xformc.trainer.scores import result_scores
from xformc.trainer.scores.metrics import Measure
from xformc.trainer.train import train

pytestmark = pytest.mark.processor

SPEC = """\
sizes: {d_model: 8, features: 3, one: 1}
inputs: {frames: {vectors: features}}
results: {angle: {degrees: turned}}
model: {turned: {from: frames, do: {wide: {linear: d_model}, near: tanh, one: {linear: one}, whole: mean}}}
train:
  schedule: {peak: 0.02, warmup_steps: 10}
  batch_tokens: 200
  steps: 60
  checkpoint: {every_steps: 30, every_minutes: null}
  average: 1
"""
TURN = 180.0


class Degrees(Kind):
    """A number in half turns, which the engine returns in degrees."""

    name = "degrees"
    outputs = ("degrees",)

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        return "float32[batch, SIZE]"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        return is_result(type, sequences, range(1, 2))

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        return type

    def loss(self, result: Declared, smoothing: float) -> Op:
        return Deviation(squared=True)

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        return [(onnx.op("Mul", value, TURN), type)]

    def expected(self, value: Any, settings: Mapping[str, Setting]) -> tuple[Any, ...]:
        return (value * np.float32(TURN),)


class DegreeValues(ResultKind):
    """A float."""

    name = "degrees"

    def value(self, result: Result, arrays: Arrays) -> float:
        return float(arrays[0][0])

    def nothing(self, result: Result) -> float:
        return 0.0

    def line(self, value: float) -> str:
        return f"{value:.0f} degrees"

    def fields(self, result: Result, value: float) -> dict[str, object]:
        return {"degrees": value}


class DegreeTargets(TargetKind):
    """Numbers in half turns."""

    name = "degrees"

    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        return numbers_column(target, cells, lengths)


def _score(target: Target, found: Any, column: Column, labels: Any) -> list[Measure]:
    wanted = column.tensors("x", np.arange(len(column)), 1)["x"].numpy()[:, 0] * TURN
    return [Measure("error", "mean error", float(np.abs(np.array(found) - wanted).mean()), "degrees")]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for table, kind in ((kinds.KINDS, Degrees()), (values.KINDS, DegreeValues()), (targets.TARGETS, DegreeTargets())):
        monkeypatch.setitem(table, "degrees", kind)  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(result_scores.SCORES, "degrees", _score)
    yield


@pytest.mark.usefixtures("toy")
def test_a_new_kind_of_result_needs_no_other_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, count in (("train", 60), ("valid", 10)):
        frames = random.standard_normal((count, 4, 3), np.float32)
        lengths, angle = np.full(count, 4), frames[:, :, :1].mean(1)
        np.savez(tmp_path / f"{name}.npz", frames=frames, frames_lengths=lengths, angle=angle)
    (tmp_path / "model.yaml").write_text(SPEC)
    result = train(load_spec(tmp_path / "model.yaml"), tmp_path, tmp_path / "run")
    assert (result.scores["angle_error"].value or 0) < 40
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    certificate = build_run(spec, tmp_path / "run", tmp_path / "engine", BuildOptions("portable"))
    assert [stage.name for stage in certificate.stages] == ["forward", "results", "batch"]
    with load(tmp_path / "engine", threads=1) as engine:
        one = np.full((1, 2, 3), 0.5, np.float32)
        (found,) = engine.predict({"frames": one, "frames_lengths": np.array([2])})
        assert found.results["angle"] == pytest.approx(90, abs=60)
