"""The training loop."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from xformc.trainer.checkpoint import State
from xformc.trainer.data.batches import Batch, Data, Examples, make_batch, plan_batches
from xformc.trainer.data.curriculum import parts_after
from xformc.trainer.data.prefetch import prefetched
from xformc.trainer.moving_average import update_average
from xformc.trainer.parallel import reducing
from xformc.trainer.processes import ALONE, Processes
from xformc.trainer.rates import set_rate

VALIDATION_SEED = 0


@dataclass(frozen=True)
class Recipe:
    """The loop's settings, from a spec's `train` section and the command line.

    learning_rate: maps a step, counted from 1, to its rate. batch_tokens: maximum positions of each input in a batch.
    accumulate: batches per update. steps, seconds: training ends at whichever comes first.
    checkpoint_steps, checkpoint_seconds: steps or seconds between checkpoints. weights: those of the results' losses.
    patience: training ends after so many checkpoints without a lower validation loss. ema: decay of the moving average.
    copies: how often a step has each row, with dropout of its own (R-Drop: 2). operations: counts those of a batch.
    """

    learning_rate: Callable[[int], float]
    batch_tokens: int
    accumulate: int
    clip_norm: float | None
    seed: int
    bfloat16: bool
    steps: int
    seconds: float | None
    checkpoint_steps: int | None
    checkpoint_seconds: float | None
    weights: tuple[float, ...] = (1.0,)
    patience: int | None = None
    ema: float | None = None
    copies: int = 1
    operations: Callable[[Batch], float] = lambda batch: 0.0


@dataclass(frozen=True)
class Update:
    """The result of one update.

    sums: the summed loss of each result's labels in nats, times its weight, and then the mean of the auxiliary losses,
        on the model's device.
    counts: the labels of each result. skipped: the gradient was not finite, and nothing has changed. operations: those
        of the step, if they are counted.
    """

    sums: torch.Tensor
    counts: Sequence[int]
    learning_rate: float
    skipped: bool = False
    operations: float = 0.0

    @property
    def count(self) -> int:
        """The labels of the first result."""
        return self.counts[0]


def mean_losses(updates: Sequence[Update]) -> list[float]:
    """Return the losses of some updates, without label smoothing: that of a label of each result, times its weight, and
    the auxiliary one."""
    totals = torch.stack([update.sums for update in updates]).sum(0)
    *sums, auxiliary = (float(total) for total in totals)
    counts = [sum(each) for each in zip(*(update.counts for update in updates), strict=True)]
    return [*(one / max(count, 1) for one, count in zip(sums, counts, strict=True)), auxiliary / len(updates)]


def fit(  # noqa: PLR0913 (two of them only tests leave out)
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Data,
    recipe: Recipe,
    state: State,
    *,
    on_update: Callable[[State, Update], None],
    on_checkpoint: Callable[[State], State],
    processes: Processes = ALONE,
    stopped: Callable[[], bool] = lambda: False,
) -> State:
    """Train `model` from `state`, and return the final state after `on_checkpoint` for it.

    If any process is `stopped`, all end after the step; the state may then be between two checkpoints of the recipe.
    `model(*inputs, *targets)` returns for each loss the mean, the sum without label smoothing, and the count. All
    `processes` make the same updates of the same batches.
    """
    on_gpu = next(model.parameters()).device.type == "cuda"
    batches = prefetched(
        (position, batch.pinned() if on_gpu else batch) for position, batch in stream(data, recipe, state)
    )
    began = time.monotonic() - state.seconds
    asked = 0.0
    model.train()
    while not (asked or ended(recipe, state)):
        positions, group = zip(*islice(batches, recipe.accumulate), strict=True)
        update = take_step(model, optimizer, group, recipe, state.step + 1, processes)
        epoch, window, batch = positions[-1]
        elapsed = time.monotonic() - began if processes.first else 0.0
        seconds, asked = processes.total(elapsed, stopped())
        state = replace(
            state,
            step=state.step + 1,
            epoch=epoch,
            window=window,
            batch=batch,
            tokens=state.tokens + update.count,
            skipped=state.skipped + update.skipped,
            seconds=seconds,
            steps_after=state.steps_after + 1,
            seconds_after=state.seconds_after + seconds - state.seconds,
        )
        on_update(state, replace(update, operations=sum(map(recipe.operations, group))))
        if _checkpoint_due(recipe, state):
            state = on_checkpoint(_without_steps_after(state))
            model.train()
    if not state.between:
        return state
    return on_checkpoint(_without_steps_after(state) if ended(recipe, state) else state)


def _without_steps_after(state: State) -> State:
    """The state as one of a checkpoint of the recipe."""
    return replace(state, steps_after=0, seconds_after=0.0)


def take_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    group: tuple[Batch, ...],
    recipe: Recipe,
    step: int,
    processes: Processes = ALONE,
) -> Update:
    """Make one update from the batches of `group`; every label of the group has the same weight.

    A gradient that is not finite changes nothing.
    """
    device = next(model.parameters()).device
    torch.manual_seed(draw_seed(*processes.seed(recipe.seed, step)))  # pyright: ignore[reportUnknownMemberType]
    counts = [sum(each) for each in zip(*(batch.counts for batch in group), strict=True)]
    sums = torch.zeros(len(recipe.weights) + 1, device=device)
    optimizer.zero_grad()
    own = processes.share(group)
    for batch in own:
        with reducing(model, batch is own[-1]):
            with autocast(device, recipe.bfloat16):
                losses = model(*_inputs(batch.repeated(recipe.copies), device))
            shares = [one / max(whole, 1) for one, whole in zip(batch.counts, counts, strict=True)]
            weighted, measured = _weighted(losses, shares, recipe.weights, 1 / len(group))
            # Gradients are averaged over the processes, and their sum is wanted.
            (weighted * processes.count).backward()  # pyright: ignore[reportUnknownMemberType]
        sums += measured.detach()
    processes.add(sums)
    _complete_gradients(model)
    rate = recipe.learning_rate(step)
    set_rate(optimizer, rate)
    finite = bool(_clipped_norm(model, recipe.clip_norm).isfinite())
    if finite:
        optimizer.step()
        if recipe.ema is not None:
            update_average(optimizer, recipe.ema, step)
    return Update(sums, counts, rate, skipped=not finite)


def _clipped_norm(model: torch.nn.Module, limit: float | None) -> torch.Tensor:
    """Return the norm of the gradient, after which it is at most `limit`."""
    if limit is not None:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    return torch.nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None])


def _weighted(
    losses: Sequence[torch.Tensor], shares: Sequence[float], weights: Sequence[float], share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of a batch in an update, and its part of `Update.sums`.

    `losses` has the mean, the sum and the count of each result's loss, then of auxiliary losses. `shares` are the parts
    of the update's targets that the batch has, and `share` its part of the update.
    """
    loss = auxiliary = losses[0].new_zeros(())
    for index, weight in enumerate(weights):
        loss = loss + losses[3 * index] * (weight * shares[index])
    for mean in losses[3 * len(weights) :: 3]:
        auxiliary = auxiliary + mean * share
    sums = [losses[3 * index + 1] * weight for index, weight in enumerate(weights)]
    return loss + auxiliary, torch.stack([*sums, auxiliary])


def validation_loss(
    model: torch.nn.Module,
    examples: Examples,
    batch_tokens: int,
    *,
    bfloat16: bool,
    weights: Sequence[float] = (1.0,),
    processes: Processes = ALONE,
) -> float:
    """Return the mean loss per target, without label smoothing, dropout and auxiliary losses, summed by `weights`.

    For a cross entropy it is the negative log likelihood in nats per label.
    """
    return sum(
        validation_losses(model, examples, batch_tokens, bfloat16=bfloat16, weights=weights, processes=processes)
    )


def validation_losses(
    model: torch.nn.Module,
    examples: Examples,
    batch_tokens: int,
    *,
    bfloat16: bool,
    weights: Sequence[float] = (1.0,),
    processes: Processes = ALONE,
) -> list[float]:
    """Return the part of each result in `validation_loss`: its mean loss per target, times its weight."""
    device = next(model.parameters()).device
    sums, counts = np.zeros(len(weights)), np.zeros(len(weights))
    plan = plan_batches(examples, batch_tokens, VALIDATION_SEED, epoch=0)
    model.eval()
    with torch.no_grad(), autocast(device, bfloat16):
        for start in range(0, len(plan), processes.count):
            index = start + processes.rank
            batch = make_batch(examples, plan[min(index, len(plan) - 1)])  # all processes run equally often
            losses = model(*_inputs(batch, device))
            if index < len(plan):
                sums += [losses[3 * result + 1].item() for result in range(len(weights))]
                counts += batch.counts
    sums, counts = processes.add(torch.tensor(np.stack((sums, counts)))).numpy()
    return (np.array(weights) * sums / counts.clip(1)).tolist()


def stream(data: Data, recipe: Recipe, state: State) -> Iterator[tuple[tuple[int, int, int], Batch]]:
    """Yield batches endlessly from the state's position, each with the position (epoch, window, batch) after it.

    Each part of a curriculum begins an epoch.
    """
    position = (state.epoch, state.window, state.batch)
    for part in parts_after(data, state.step):
        count = None if part.steps is None else part.steps * recipe.accumulate
        for position, batch in islice(_endless(part.data, recipe, *position), count):  # noqa: B020 (it goes on there)
            yield position, batch
        position = (position[0] + 1, 0, 0)


def _endless(
    data: Data, recipe: Recipe, epoch: int, window: int, first: int
) -> Iterator[tuple[tuple[int, int, int], Batch]]:
    while True:
        for number, examples in data.windows(recipe.seed, epoch, window):
            plan = plan_batches(examples, recipe.batch_tokens, recipe.seed, epoch, number)
            for index in range(first, len(plan)):
                yield (epoch, number, index + 1), make_batch(examples, plan[index])
            first = 0
        epoch, window, first = epoch + 1, 0, 0


def draw_seed(*numbers: int) -> int:
    """Return a seed for torch that depends on all `numbers`; torch's CPU generator uses only 32 bits of its seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


@contextmanager
def autocast(device: torch.device, enabled: bool) -> Generator[None]:
    """Compute matrix products in bfloat16 inside the block, if `enabled`.

    On a CPU, attention then uses SDPA's math kernel: the flash kernel's backward pass in bfloat16 takes
    eight times as long on sentences (torch 2.13, 4 heads of 32, 16 tokens).
    """
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled))
        if enabled and device.type == "cpu":
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # pyright: ignore[reportUnknownArgumentType]
        yield


def _complete_gradients(model: torch.nn.Module) -> None:
    """Set missing gradients to zero, as of a projection of which only the argmax counts.

    Every parameter then has its state in the optimizer, which a checkpoint stores.
    """
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _inputs(batch: Batch, device: torch.device) -> tuple[torch.Tensor, ...]:
    placed = batch.to(device)
    return *placed.inputs.values(), *placed.targets.values()


def ended(recipe: Recipe, state: State) -> bool:
    """Whether the recipe asks for no further step."""
    return (
        state.step >= recipe.steps or _reached(recipe.seconds, state.seconds) or _reached(recipe.patience, state.worse)
    )


def _checkpoint_due(recipe: Recipe, state: State) -> bool:
    return _reached(recipe.checkpoint_steps, state.steps_after) or _reached(
        recipe.checkpoint_seconds, state.seconds_after
    )


def _reached(limit: float | None, value: float) -> bool:
    return limit is not None and value >= limit
