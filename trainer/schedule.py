"""The learning rate of "Attention Is All You Need", section 5.3."""


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """`scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)` (equation 3; the first step is 1).

    It rises linearly for `warmup_steps` steps and then falls with the square root of the step; with
    `warmup_steps` 0 it falls from the start.
    """
    assert step >= 1
    decay = step**-0.5
    rise = step * warmup_steps**-1.5 if warmup_steps else decay
    return scale * d_model**-0.5 * min(decay, rise)
