from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_model import TinyModel, copy_examples, make_adam, make_recipe, save_checkpoint

from xformc.trainer.checkpoint import State, load_checkpoint, newest_checkpoint
from xformc.trainer.data.batches import make_batch, plan_batches
from xformc.trainer.loop import Recipe, Update, draw_seed, fit, stream, take_step, validation_loss

EXAMPLES = copy_examples()


def run(
    model: TinyModel,
    recipe: Recipe,
    state: State | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    on_checkpoint: Callable[[State], State] = lambda state: state,
    on_update: Callable[[State, Update], None] = lambda state, update: None,
) -> State:
    return fit(
        model,
        optimizer or make_adam(model),
        EXAMPLES,
        recipe,
        state or State(),
        on_update=on_update,
        on_checkpoint=on_checkpoint,
    )


def test_fit_lowers_the_loss() -> None:
    model = TinyModel()
    before = validation_loss(model, EXAMPLES, 64, bfloat16=False)
    run(model, make_recipe(steps=60))
    assert validation_loss(model, EXAMPLES, 64, bfloat16=False) < 0.8 * before


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [1, 7, 20])
def test_fit_continues_a_checkpoint_to_the_bit(tmp_path: Path, stop: int, accumulate: int) -> None:
    whole = TinyModel()
    end = run(whole, make_recipe(steps=25, accumulate=accumulate))
    first = TinyModel()
    optimizer = make_adam(first)
    state = run(first, make_recipe(steps=stop, accumulate=accumulate), optimizer=optimizer)
    save_checkpoint(tmp_path, state, first, optimizer, {})
    torch.manual_seed(99)

    second = TinyModel()
    optimizer = make_adam(second)
    folder = newest_checkpoint(tmp_path)
    assert folder is not None
    resumed = load_checkpoint(folder, second, optimizer)
    assert resumed == state
    again = run(second, make_recipe(steps=25, accumulate=accumulate), resumed, optimizer)
    assert (again.step, again.epoch, again.batch, again.tokens) == (end.step, end.epoch, end.batch, end.tokens)
    for name, parameter in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], parameter)


def test_fit_depends_on_the_seed() -> None:
    models = [TinyModel(), TinyModel()]
    for seed, model in enumerate(models):
        run(model, make_recipe(seed=seed))
    assert not torch.equal(models[0].embedding, models[1].embedding)


def test_fit_calls_for_checkpoints_by_steps_and_at_the_end() -> None:
    steps: list[int] = []

    def keep(state: State) -> State:
        steps.append(state.step)
        return state

    run(TinyModel(), make_recipe(steps=10, checkpoint_steps=4), on_checkpoint=keep)
    assert steps == [4, 8, 10]
    steps.clear()
    run(TinyModel(), make_recipe(steps=8, checkpoint_steps=4), on_checkpoint=keep)
    assert steps == [4, 8]
    steps.clear()
    run(TinyModel(), make_recipe(steps=3, checkpoint_seconds=0.0), on_checkpoint=keep)
    assert steps == [1, 2, 3]


def test_fit_stops_after_the_seconds() -> None:
    assert run(TinyModel(), make_recipe(steps=1000, seconds=0.0)).step == 0
    assert 0 < run(TinyModel(), make_recipe(steps=10**6, seconds=0.05)).step < 10**5


def test_take_step_accumulates_to_the_gradient_of_one_batch() -> None:
    rows = plan_batches(EXAMPLES, 64, 1, 0)
    whole = make_batch(EXAMPLES, torch.cat([torch.from_numpy(part) for part in rows[:3]]).numpy())
    parts = tuple(make_batch(EXAMPLES, part) for part in rows[:3])
    gradients: list[torch.Tensor] = []
    for group in ((whole,), parts):
        model = TinyModel().eval()
        update = take_step(model, make_adam(model), group, make_recipe(), step=1)
        assert update.count == whole.count
        assert model.embedding.grad is not None
        gradients.append(model.embedding.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_take_step_clips_the_gradient() -> None:
    model = TinyModel()
    batch = make_batch(EXAMPLES, plan_batches(EXAMPLES, 64, 1, 0)[0])
    take_step(model, make_adam(model), (batch,), make_recipe(clip_norm=0.01), step=1)
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]))
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_take_step_learns_in_bfloat16() -> None:
    models = [TinyModel(), TinyModel()]
    for model, bfloat16 in zip(models, (False, True), strict=True):
        run(model, make_recipe(steps=60, bfloat16=bfloat16))
    losses = [validation_loss(model, EXAMPLES, 64, bfloat16=False) for model in models]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert not torch.equal(models[0].embedding, models[1].embedding)


def test_stream_goes_on_from_a_position() -> None:
    recipe = make_recipe()
    batches = stream(EXAMPLES, recipe, State())
    seen = [next(batches) for _ in range(30)]
    assert seen[-1][0][0] >= 1
    for index in (0, 5, 20):
        epoch, _, batch = seen[index][0]
        position, following = next(stream(EXAMPLES, recipe, State(epoch=epoch, batch=batch)))
        assert position == seen[index + 1][0]
        assert torch.equal(following.inputs["source"], seen[index + 1][1].inputs["source"])


def test_draw_seed_heeds_every_number() -> None:
    seeds = {draw_seed(seed, step) for seed in (0, 1, 2**40, 2**40 + 1) for step in range(100)}
    assert len(seeds) == 400
    assert max(seeds) < 2**32
