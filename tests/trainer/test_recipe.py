import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from several_processes import write_tiny
from tiny_model import TinyModel, copy_examples, make_adam, make_recipe, save_checkpoint

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.specs import find_spec
from xformc.trainer.checkpoint import State, chosen_checkpoints, list_checkpoints, load_checkpoint, prune_checkpoints
from xformc.trainer.data.batches import make_batch, plan_batches
from xformc.trainer.loop import Update, take_step
from xformc.trainer.moving_average import averaged, update_average
from xformc.trainer.progress import SKIPPED_IN_A_ROW, Report
from xformc.trainer.recompute import check_recompute, recompute
from xformc.trainer.selection import judged
from xformc.trainer.train import Options, train_weights

pytestmark = pytest.mark.processor


def train_tiny(folder: Path, run: str, options: Options = Options()) -> State:  # noqa: B008 (frozen)
    return train_weights(load_spec(folder / "tiny.yaml"), folder / "data", folder / run, options, quiet=True).state


def valid_losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["valid_loss"] for line in lines if "valid_loss" in line}


def test_best_checkpoint_is_the_result_and_patience_ends_training(tmp_path: Path) -> None:
    changes = (
        ("peak: 0.003", "peak: 1.0, kind: constant"),
        ("every_steps: 4", "every_steps: 1"),
        ("average: 2", "average: 1\n  select: best\n  patience: 3"),
        ("warmup_steps: 4", "warmup_steps: 40"),
    )
    write_tiny(tmp_path, *changes, ("steps: 12", "steps: 400"))
    state = train_tiny(tmp_path, "run")
    losses = valid_losses(tmp_path / "run")
    best = min(losses, key=lambda step: losses[step])
    assert state.step == best + 3 == max(losses)
    assert read_weights(tmp_path / "run").metadata["steps"] == str(best)
    assert [int(folder.name) for folder in list_checkpoints(tmp_path / "run")] == [best, best + 2, best + 3]
    assert train_tiny(tmp_path, "run", Options(resume=True)) == state


def test_run_with_a_moving_average_continues_to_the_bit(tmp_path: Path) -> None:
    write_tiny(tmp_path, ("average: 2", "average: 1\n  ema: 0.8"))
    train_tiny(tmp_path, "whole")
    train_tiny(tmp_path, "stopped", Options(minutes=1e-9))
    train_tiny(tmp_path, "stopped", Options(resume=True))
    whole, stopped = (read_weights(tmp_path / run).arrays for run in ("whole", "stopped"))
    assert all((whole[name] == stopped[name]).all() for name in whole)
    assert (tmp_path / "whole" / "metrics.jsonl").is_file()
    assert valid_losses(tmp_path / "whole")[12] == valid_losses(tmp_path / "stopped")[12]


def test_run_with_r_drop_continues_to_the_bit(tmp_path: Path) -> None:
    """Without dropout there is nothing to draw together, and the weights are those of a run without it."""
    write_tiny(tmp_path, ("steps: 12", "steps: 6\n  precision: float32"))
    train_tiny(tmp_path, "plain")
    r_drop = ("steps: 12", "steps: 6\n  precision: float32\n  r_drop: 5.0")
    write_tiny(tmp_path, r_drop)
    train_tiny(tmp_path, "same")
    assert valid_losses(tmp_path / "same") == pytest.approx(valid_losses(tmp_path / "plain"), rel=1e-5)
    write_tiny(tmp_path, r_drop, ("dropout: 0.0", "dropout: 0.2"), ("average: 2", "average: 1"))
    train_tiny(tmp_path, "whole")
    train_tiny(tmp_path, "stopped", Options(minutes=1e-9))
    train_tiny(tmp_path, "stopped", Options(resume=True))
    whole, stopped = (read_weights(tmp_path / run).arrays for run in ("whole", "stopped"))
    assert all((whole[name] == stopped[name]).all() for name in whole)
    assert valid_losses(tmp_path / "whole") != valid_losses(tmp_path / "same")


def test_moving_average_follows_the_weights_and_takes_their_place() -> None:
    model = TinyModel()
    optimizer = make_adam(model)
    start = model.embedding.detach().clone()
    optimizer.state[model.embedding]["exp_avg"] = torch.zeros(())
    update_average(optimizer, 0.5, 100)
    with torch.no_grad():
        model.embedding.add_(1.0)
    update_average(optimizer, 0.5, 101)
    with averaged(optimizer):
        torch.testing.assert_close(model.embedding.detach(), start + 0.5)
    assert torch.equal(model.embedding, start + 1.0)


def test_step_is_skipped_if_its_gradient_is_not_finite() -> None:
    model = TinyModel()
    with torch.no_grad():
        model.projection[5] = float("inf")
    before = model.embedding.detach().clone()
    batch = make_batch(copy_examples(), plan_batches(copy_examples(), 64, 1, 0)[0])
    optimizer = make_adam(model)
    for clip_norm in (None, 1.0):
        assert take_step(model, optimizer, (batch,), make_recipe(clip_norm=clip_norm), step=1).skipped
    assert torch.equal(model.embedding, before)
    assert not optimizer.state
    assert not take_step(TinyModel(), make_adam(TinyModel()), (batch,), make_recipe(), step=1).skipped


def test_skipped_steps_are_reported_and_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    update = Update(torch.tensor([6.0, 0.0]), (3,), 0.01)
    bad = replace(update, sums=update.sums * float("nan"), skipped=True)
    with Report(tmp_path / "metrics.jsonl", 100, State()) as report:
        report.update(State(step=9), update)
        report.update(State(step=10, skipped=1), bad)
        assert "step 10: skipped, because its gradient is not finite" in capfd.readouterr().err
        with pytest.raises(
            UserError, match="training diverged: the gradients of 10 steps up to step 19 are not finite"
        ):
            for step in range(11, 10 + SKIPPED_IN_A_ROW):
                report.update(State(step=step, skipped=step - 9), bad)
    (line,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (line["loss"], line["skipped"]) == (2.0, 1)


def test_best_checkpoints_and_the_newest_are_kept(tmp_path: Path) -> None:
    model = TinyModel()
    for step, loss in enumerate((3.0, 1.0, 2.0, 4.0, 5.0, 6.0), 1):
        save_checkpoint(tmp_path, State(step=step, valid_loss=loss), model, make_adam(model), {})
    assert [int(folder.name) for folder in chosen_checkpoints(tmp_path, 2, select="best")] == [2, 3]
    prune_checkpoints(tmp_path, 2, select="best")
    assert [int(folder.name) for folder in list_checkpoints(tmp_path)] == [2, 3, 5, 6]


def test_run_whose_steps_were_all_skipped_continues(tmp_path: Path) -> None:
    model, state = TinyModel(), State(step=1, skipped=1)
    folder = save_checkpoint(tmp_path, state, model, make_adam(model), {})
    assert load_checkpoint(folder, model, make_adam(model)) == state


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_activations_that_are_computed_again_are_the_same_to_the_bit(tmp_path: Path, precision: str) -> None:
    run = ("steps: 12", f"steps: 3\n  precision: {precision}"), ("dropout: 0.0", "dropout: 0.2")
    write_tiny(tmp_path, *run)
    train_tiny(tmp_path, "kept")
    write_tiny(tmp_path, *run, ("average: 2", "average: 2\n  recompute: [encoder/*, decoder/*/feed_forward]"))
    train_tiny(tmp_path, "again")
    kept, again = (read_weights(tmp_path / run).arrays for run in ("kept", "again"))
    assert all((kept[name] == again[name]).all() for name in kept)


def test_recompute_names_a_block() -> None:
    spec = load_spec(find_spec("transformer_base"), ["sizes.layers=1", "sizes.vocabulary=60", "sizes.d_ff=8"])
    model: Any = TorchModule(run_passes(run_passes(begin(spec), after=SHARED)).graph)
    with pytest.raises(UserError, match=r"train\.recompute: 'encodr' matches no block") as caught:
        check_recompute(model.graph, ["encoder/*", "encodr"])
    assert caught.value.hint == "did you mean 'encoder'?"
    check_recompute(model.graph, ["decoder/*/feed_forward"])
    with pytest.raises(UserError, match="'decoder/\\*/feed_forward' fits decoder/0/feed_forward, a part of a layer"):
        check_recompute(model.graph, ["encoder/*", "decoder/*/feed_forward"], compiled=True)
    check_recompute(model.graph, ["encoder/**", "decoder"], compiled=True)
    forward = model.encoder[0].forward
    recompute(model, ["encoder/*"])
    assert model.encoder[0].forward != forward
    assert "forward" not in vars(model.decoder[0])


def test_checkpoints_are_selected_by_the_scores_of_their_engines(tmp_path: Path) -> None:
    """Those of a checkpoint come with the next one; a run that is resumed after its end has the same lines."""
    write_tiny(tmp_path, ("steps: 12", "steps: 8"), ("average: 2", "average: 1\n  select: chrf"))
    train_tiny(tmp_path, "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["scored_step"]: (line["step"], line["chrf"]) for line in lines if "scored_step" in line}
    assert [(step, taken) for step, (taken, _) in scores.items()] == [(4, 8), (8, 8)]
    best = max(scores, key=lambda step: scores[step][1])
    assert read_weights(tmp_path / "whole").metadata["steps"] == str(best)
    before = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    state = train_tiny(tmp_path, "whole", Options(resume=True))
    assert state.best_score == scores[4][1]
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == before


def test_checkpoints_are_scored_without_being_selected_by_it(tmp_path: Path) -> None:
    write_tiny(tmp_path, ("steps: 12", "steps: 4"), ("every_steps: 4, ", "every_steps: 2, scores: true, "))
    state = train_tiny(tmp_path, "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["scored_step"]: line["bleu"] for line in lines if "scored_step" in line}
    assert list(scores) == [2, 4]
    assert state.best_score is None
    spec = (tmp_path / "run" / "spec.yaml").read_text()
    assert "scores: true" in spec
    plain = load_spec(tmp_path / "tiny.yaml", ["train.checkpoint.scores=false"]).resolved_yaml()
    assert "scores: false" not in plain, "runs from before there were scores continue"
    assert read_weights(tmp_path / "run").metadata["steps"] == "2,4"


def test_score_that_is_not_higher_counts_against_patience() -> None:
    state = State(best_score=20.0, worse=1)
    assert judged(state, math.nan) == state
    assert judged(state, 20.0).worse == judged(state, -math.inf).worse == 2
    assert judged(state, 20.5) == State(best_score=20.5)
    assert judged(State(), -math.inf) == State(worse=1)
