"""Sinks of metrics get the numbers of metrics.jsonl, and never end a training."""

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import SPEC, train_tiny, write_corpus, write_spec

from xformc.errors import UserError
from xformc.trainer.checkpoint import State
from xformc.trainer.progress import Report
from xformc.trainer.sinks import SINKS, Place, Sink, check_sinks, open_sinks
from xformc.trainer.train import Options

PLACE = Place(Path("run"), "tiny", 1, {"seed": 7})


def logged(folder: Path, *names: str) -> dict[int, float]:
    """Train six steps with these sinks; the validation losses in metrics.jsonl, by step."""
    spec = write_spec(folder, SPEC.replace("steps: 60", "steps: 6").replace("every_steps: 5", "every_steps: 3"))
    train_tiny(spec, write_corpus(folder / "data", 40), folder / "run", Options(log=names))
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["valid_loss"] for line in lines if "valid_loss" in line}


def test_sinks_that_are_unknown_or_missing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--log tensorbord: unknown") as caught:
        check_sinks(["tensorbord"])
    assert caught.value.hint == "known are tensorboard, wandb, mlflow"
    monkeypatch.setitem(SINKS, "wandb", ("no_such_module", *SINKS["wandb"][1:]))  # type: ignore[misc]
    with pytest.raises(UserError, match="--log wandb needs the package wandb"):
        open_sinks(["wandb"], PLACE)


def test_failing_sinks_are_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen = list[tuple[int, Mapping[str, float]]]()

    def fail(step: int, numbers: Mapping[str, float]) -> None:
        seen.append((step, numbers))
        raise OSError("the server is gone")

    sink = Sink("mlflow", fail, lambda outcome: None)
    with Report(tmp_path / "metrics.jsonl", 3, State(), [sink]) as report:
        report.validation(State(step=1), 2.0)
        report.validation(State(step=2), 1.0)
    assert seen == [(1, {"valid_loss": 2.0})]
    assert "--log mlflow has failed, and gets no more metrics: the server is gone" in capfd.readouterr().err
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "finished"), (UserError("diverged"), "failed"), (KeyboardInterrupt(), "killed")]
)
def test_sinks_are_told_how_a_training_ended(error: BaseException | None, outcome: str) -> None:
    ends = list[str]()
    with (
        contextlib.suppress(UserError, KeyboardInterrupt),
        Report(None, 3, State(), [Sink("mlflow", lambda step, numbers: None, ends.append)]),
    ):
        if error is not None:
            raise error
    assert ends == [outcome]


def test_a_run_is_the_same_in_its_sinks_when_it_goes_on_and_another_one_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for run in (first, second):
        run.mkdir()
    begun = replace(PLACE, run=first)
    assert begun.id == replace(PLACE, run=first, first=7).id != replace(PLACE, run=second).id
    (first / "log_id").unlink()
    assert begun.id == replace(PLACE, run=first).id, "a new training in the same folder has drawn its own"


def test_sinks_get_the_lines_before_a_resumed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, before = list[int](), list[list[int]]()

    def remember(place: Place) -> Sink:
        before.append([step for step, numbers in place.before if "valid_loss" in numbers])
        return Sink("mlflow", lambda step, numbers: seen.append(step), lambda outcome: None)

    monkeypatch.setitem(SINKS, "mlflow", ("json", "mlflow-skinny", remember))  # type: ignore[misc]
    text = SPEC.replace("every_steps: 5", "every_steps: 3")
    data = write_corpus(tmp_path / "data", 40)
    for steps in (6, 9):
        spec = write_spec(tmp_path, text.replace("steps: 60", f"steps: {steps}"))
        train_tiny(spec, data, tmp_path / f"run{steps}", Options(log=("mlflow",)))
    shutil.rmtree(tmp_path / "run9" / "checkpoints" / "00000009")
    train_tiny(spec, data, tmp_path / "run9", Options(log=("mlflow",), resume=True))
    assert before == [[], [], [3, 6]] and seen[-1] == 9


def test_tensorboard_has_the_losses(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # pyright: ignore[reportMissingImports]

    losses = logged(tmp_path, "tensorboard")
    read: Any = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    read.Reload()
    found = {event.step: event.value for event in read.Scalars("valid_loss")}
    assert found == {step: pytest.approx(loss) for step, loss in losses.items()} and len(found) == 2


def test_sinks_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(place: Place) -> Sink:
        raise OSError("no such server")

    monkeypatch.setitem(SINKS, "mlflow", ("json", "mlflow-skinny", refuse))  # type: ignore[misc]
    with pytest.raises(UserError, match="--log mlflow could not start: no such server"):
        open_sinks(["mlflow"], PLACE)


def test_mlflow_has_the_losses_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow'}")
    losses = logged(tmp_path, "mlflow")
    made: Any = MlflowClient
    client = made()
    [experiment] = [one for one in client.search_experiments() if one.name == "tiny"]
    [run] = client.search_runs([experiment.experiment_id])
    found = {one.step: one.value for one in client.get_metric_history(run.info.run_id, "valid_loss")}
    assert found == {step: pytest.approx(loss) for step, loss in losses.items()}
    assert run.info.status == "FINISHED" and run.data.params["seed"] == "7"


def test_wandb_writes_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged(tmp_path, "wandb")
    [written] = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert written.stat().st_size > 0 and torch.get_num_threads()
