"""Learning rate schedules: a linear warm-up to the peak, then a fall that the spec chooses."""

import math
from collections.abc import Callable, Mapping

from xformc.compiler.spec.sections import Schedule


def schedule_of(schedule: Schedule, sizes: Mapping[str, float], steps: int) -> Callable[[int], float]:
    """Return the learning rate of each step, counted from 1; `steps` is the length of the training."""
    if schedule.kind == "inverse_square_root":
        factor, last = rate_factor(schedule, sizes), steps if schedule.decay == "linear" else None
        return lambda step: learning_rate(step, factor=factor, warmup_steps=schedule.warmup_steps, decay_steps=last)
    assert schedule.peak is not None
    peak, shape = schedule.peak, _SHAPES[schedule.kind]
    return lambda step: peak * min(_rise(step, schedule), _between(schedule.final, shape(step, schedule, steps)))


def learning_rate(step: int, *, factor: float, warmup_steps: int, decay_steps: int | None = None) -> float:
    """Return `factor * min(step^-0.5, step * warmup_steps^-1.5) * max(0, 1 - step / decay_steps)`.

    This is equation 3 of "Attention Is All You Need"; the first step is 1. The rate rises linearly for `warmup_steps`
    steps, then falls with the inverse square root of the step; with `warmup_steps` 0 it falls from the start. The last
    factor is left out if `decay_steps` is None.
    """
    assert step >= 1
    fall = step**-0.5
    rise = step * warmup_steps**-1.5 if warmup_steps else fall
    left = 1.0 if decay_steps is None else max(0.0, 1.0 - step / decay_steps)
    return factor * min(fall, rise) * left


def rate_factor(schedule: Schedule, sizes: Mapping[str, float]) -> float:
    """Return the factor of `learning_rate`: `scale * width^-0.5`, or the factor that makes `peak` the highest rate."""
    if schedule.peak is not None:
        return schedule.peak * max(1, schedule.warmup_steps) ** 0.5
    return schedule.scale * sizes[schedule.width] ** -0.5


def _rise(step: int, schedule: Schedule) -> float:
    return step / schedule.warmup_steps if step < schedule.warmup_steps else 1.0


def _constant(step: int, schedule: Schedule, steps: int) -> float:
    return 1.0


def _linear(step: int, schedule: Schedule, steps: int) -> float:
    return 1.0 - _part(step, schedule.warmup_steps, steps)


def _cosine(step: int, schedule: Schedule, steps: int) -> float:
    """Half a cosine (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return 0.5 + 0.5 * math.cos(math.pi * _part(step, schedule.warmup_steps, steps))


def _stable(step: int, schedule: Schedule, steps: int) -> float:
    """The peak, and a linear fall in the last steps (Hu et al. 2024, section 4.2)."""
    assert schedule.decay_steps is not None
    return 1.0 - _part(step, max(schedule.warmup_steps, steps - schedule.decay_steps), steps)


def _part(step: int, start: int, end: int) -> float:
    """How much of the way from `start` to `end` is done."""
    return min(1.0, max(0.0, (step - start) / max(1, end - start)))


def _between(low: float, part: float) -> float:
    return low + (1.0 - low) * part


_SHAPES: Mapping[str, Callable[[int, Schedule, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "warmup_stable_decay": _stable,
}
