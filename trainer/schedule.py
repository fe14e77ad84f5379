"""The learning rate schedule of "Attention Is All You Need", section 5.3, with an optional linear decay to 0."""

from collections.abc import Mapping

from xformc.compiler.spec.sections import Schedule


def learning_rate(step: int, *, factor: float, warmup_steps: int, decay_steps: int | None = None) -> float:
    """Return `factor * min(step^-0.5, step * warmup_steps^-1.5) * max(0, 1 - step / decay_steps)`.

    This is equation 3; the first step is 1. The rate rises linearly for `warmup_steps` steps, then falls with the
    inverse square root of the step; with `warmup_steps` 0 it falls from the start. The last factor is left out if
    `decay_steps` is None.
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
