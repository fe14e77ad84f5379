"""The learning rate: that of "Attention Is All You Need", section 5.3, and its decay to nothing."""


def learning_rate(
    step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0, decay_steps: int | None = None
) -> float:
    """`scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) * max(0, 1 - step / decay_steps)`.

    That is equation 3, where the first step is 1: it rises linearly for `warmup_steps` steps and then falls with the
    square root of the step; with `warmup_steps` 0 it falls from the start. The last factor is left out if
    `decay_steps` is None.
    """
    assert step >= 1
    fall = step**-0.5
    rise = step * warmup_steps**-1.5 if warmup_steps else fall
    left = 1.0 if decay_steps is None else max(0.0, 1.0 - step / decay_steps)
    return scale * d_model**-0.5 * min(fall, rise) * left
