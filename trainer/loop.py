"""The training loop."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from xformc.trainer.checkpoint import State
from xformc.trainer.data.batches import Batch, Examples, make_batch, plan_batches

VALIDATION_SEED = 0


@dataclass(frozen=True)
class Recipe:
    """The loop's settings, from a spec's `train` section and the command line.

    learning_rate: maps a step, counted from 1, to its rate. batch_tokens: maximum positions of each input in a batch.
    accumulate: batches per update. steps, seconds: training ends at whichever comes first.
    checkpoint_steps, checkpoint_seconds: steps or seconds between checkpoints.
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


@dataclass(frozen=True)
class Update:
    """The result of one update: `nll` is the summed loss of `count` labels in nats, on the model's device."""

    nll: torch.Tensor
    count: int
    learning_rate: float


def fit(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    examples: Examples,
    recipe: Recipe,
    state: State,
    *,
    on_update: Callable[[State, Update], None],
    on_checkpoint: Callable[[State], State],
) -> State:
    """Train `model` from `state`, and return the final state after `on_checkpoint` for it.

    `model(*inputs, labels)` returns the mean loss, the summed negative log likelihood, and the number of labels.
    """
    batches = stream(examples, recipe, state)
    began = time.monotonic() - state.seconds
    saved = state
    model.train()
    while state.step < recipe.steps and not _reached(recipe.seconds, state.seconds):
        positions, group = zip(*islice(batches, recipe.accumulate), strict=True)
        update = take_step(model, optimizer, group, recipe, state.step + 1)
        epoch, batch = positions[-1]
        state = replace(
            state,
            step=state.step + 1,
            epoch=epoch,
            batch=batch,
            tokens=state.tokens + update.count,
            seconds=time.monotonic() - began,
        )
        on_update(state, update)
        if _checkpoint_due(recipe, state, saved):
            saved = state = on_checkpoint(state)
            model.train()
    return state if saved is state else on_checkpoint(state)


def take_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, group: tuple[Batch, ...], recipe: Recipe, step: int
) -> Update:
    """Make one update from the batches of `group`; every label of the group has the same weight."""
    device = next(model.parameters()).device
    torch.manual_seed(draw_seed(recipe.seed, step))  # pyright: ignore[reportUnknownMemberType]
    count = sum(batch.count for batch in group)
    nll = torch.zeros((), device=device)
    optimizer.zero_grad()
    for batch in group:
        with autocast(device, recipe.bfloat16):
            loss, batch_nll, _ = model(*_inputs(batch, device))
        (loss * (batch.count / count)).backward()
        nll += batch_nll.detach()
    _complete_gradients(model)
    if recipe.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    rate = recipe.learning_rate(step)
    for parameters in optimizer.param_groups:
        parameters["lr"] = rate
    optimizer.step()
    return Update(nll, count, rate)


def validation_loss(model: torch.nn.Module, examples: Examples, batch_tokens: int, *, bfloat16: bool) -> float:
    """Return the mean negative log likelihood in nats per label, without label smoothing or dropout."""
    device = next(model.parameters()).device
    nll, count = 0.0, 0
    model.eval()
    with torch.no_grad(), autocast(device, bfloat16):
        for rows in plan_batches(examples, batch_tokens, VALIDATION_SEED, epoch=0):
            batch = make_batch(examples, rows)
            nll += model(*_inputs(batch, device))[1].item()
            count += batch.count
    return nll / count


def stream(examples: Examples, recipe: Recipe, state: State) -> Iterator[tuple[tuple[int, int], Batch]]:
    """Yield batches endlessly from the state's position, each with the position (epoch, batch) after it."""
    epoch, first = state.epoch, state.batch
    while True:
        plan = plan_batches(examples, recipe.batch_tokens, recipe.seed, epoch)
        for index in range(first, len(plan)):
            yield (epoch, index + 1), make_batch(examples, plan[index])
        epoch, first = epoch + 1, 0


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
    return *placed.inputs.values(), placed.labels


def _checkpoint_due(recipe: Recipe, state: State, saved: State) -> bool:
    return _reached(recipe.checkpoint_steps, state.step - saved.step) or _reached(
        recipe.checkpoint_seconds, state.seconds - saved.seconds
    )


def _reached(limit: float | None, value: float) -> bool:
    return limit is not None and value >= limit
