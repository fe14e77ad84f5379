import json
from pathlib import Path
from typing import Any

import pytest
import torch

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.specs import find_spec
from xformc.trainer.checkpoint import State
from xformc.trainer.loop import Update
from xformc.trainer.progress import Report, check_finite, lines_until


def lines(metrics: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def feed(report: Report, first: int, last: int, nll: float = 6.0) -> None:
    for step in range(first, last + 1):
        report.update(State(step=step, tokens=3 * step), Update(torch.tensor([nll, 0.0]), (3,), 0.01))


def test_report_writes_a_line_every_ten_updates(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with Report(metrics, 100, State(), quiet=True) as report:
        feed(report, 1, 25)
        report.validation(State(step=25), 1.5)
    written = lines(metrics)
    assert [line["step"] for line in written] == [10, 20, 25]
    assert (written[0]["loss"], written[0]["tokens"], written[0]["learning_rate"]) == (2.0, 30, 0.01)
    assert written[0]["tokens_per_second"] > 0
    assert written[2]["valid_loss"] == 1.5


def test_report_stops_a_run_that_diverged(tmp_path: Path) -> None:
    for loss in (float("nan"), float("inf")):
        with (
            pytest.raises(UserError, match=f"training diverged: the loss is {loss} at step 10") as caught,
            Report(tmp_path / "metrics.jsonl", 100, State(), quiet=True) as report,
        ):
            feed(report, 1, 10, nll=loss)
        assert "warmup_steps" in (caught.value.hint or "")


def test_a_loss_that_is_no_number_keeps_its_checkpoint_from_being_written() -> None:
    check_finite(State(step=3), 2.5)
    for loss in (float("nan"), float("inf")):
        with pytest.raises(UserError, match=f"training diverged: the loss is {loss} at step 3"):
            check_finite(State(step=3), loss)


def test_report_drops_lines_after_the_state_it_continues(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 10}\n{"step": 20}\n{"step": 30}\n{"ste')
    Report(metrics, 100, State(step=20), quiet=True)
    assert lines(metrics) == [{"step": 10}, {"step": 20}]


def test_report_speaks_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Report(tmp_path / "metrics.jsonl", 100, State()) as report:
        report.note("hello [world]")
    out, error = capsys.readouterr()
    assert out == ""
    assert "hello [world]" in error


def test_bar_of_a_run_that_ends_by_time_ends_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After 20 of 100 seconds and 10 steps, 50 steps are expected, and not 1,000."""
    with Report(None, 1000, State(), seconds=100.0) as report:
        report.update(State(step=10, seconds=20.0), Update(torch.tensor([8.0, 0.0]), (4,), 0.1))
    shown = capfd.readouterr().err
    assert "10/50 " in shown and "loss 2.000" in shown and " GB" in shown and "FLOP" not in shown


def test_operations_are_shown_beside_their_share_of_the_peak(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    metrics = tmp_path / "metrics.jsonl"
    with Report(metrics, 1000, State(), peak=1e18) as report:
        report.update(State(step=10), Update(torch.tensor([8.0, 0.0]), (4,), 0.1, operations=1e12))
    (line,) = lines(metrics)
    assert line["mfu"] == pytest.approx(line["flops_per_second"] / 1e18, abs=1e-4)
    shown = capfd.readouterr().err
    assert "FLOP/s  MFU " in shown


def test_the_loss_of_several_results_is_that_of_their_labels(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Labels of 2 in all weigh the same in each result, whichever updates have them; the last number is auxiliary."""
    metrics = tmp_path / "metrics.jsonl"
    results = load_spec(find_spec("translation_with_quality"), ["train.losses={quality: {weight: 2.0}}"]).results
    with Report(metrics, 100, State(), results=results) as report:
        report.update(State(step=9), Update(torch.tensor([0.0, 6.0, 0.5]), (0, 3), 0.01))
        report.update(State(step=10), Update(torch.tensor([4.0, 1.0, 1.5]), (2, 4), 0.01))
        report.update(State(step=20), Update(torch.tensor([0.0, 8.0, 0.0]), (0, 4), 0.01))
        report.validation(State(step=20), 2.5, (1.5, 1.0))
    first, second, valid = lines(metrics)
    assert [first["loss"], second["loss"]] == [4.0 / 2 + 7.0 / 7 + 1.0, 2.0]
    assert (first["losses"], second["losses"]) == ({"target": 2.0, "quality": 0.5}, {"quality": 1.0})
    assert lines_until(metrics, 10)[0][1]["losses/target"] == 2.0, "as sinks have it"
    assert (valid["valid_loss"], valid["valid_losses"]) == (2.5, {"target": 1.5, "quality": 0.5})
    shown = capfd.readouterr().err
    assert "step 20: validation loss 2.5000 (target 1.500, quality 0.500)\n" in shown and "perplexity" not in shown


@pytest.mark.parametrize(
    ("spec", "unit", "perplexity"), [("gpt", "tokens", True), ("text_classifier", "labels", False)]
)
def test_what_is_counted_and_its_perplexity_follow_from_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], spec: str, unit: str, perplexity: bool
) -> None:
    with Report(tmp_path / "metrics.jsonl", 100, State(), results=load_spec(find_spec(spec)).results) as report:
        report.update(State(step=10, tokens=30), Update(torch.tensor([6.0, 0.0]), (3,), 0.01))
        report.validation(State(step=10), 1.0, (1.0,))
    line, valid = lines(tmp_path / "metrics.jsonl")
    assert line[unit] == 30 and f"{unit}_per_second" in line and "losses" not in line and "valid_losses" not in valid
    shown = capfd.readouterr().err
    assert f"{unit}/s" in shown and ("(perplexity 2.72)" in shown) is perplexity


def test_a_narrow_terminal_shows_the_step_and_the_loss(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with Report(None, 100_000, State()) as report:
        feed(report, 1, 20)
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("training 20/100,000 ") and "epoch 1  loss 2.000" in last
