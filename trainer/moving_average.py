"""An exponential moving average of the weights, kept as a state of the optimizer, so that checkpoints have it."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from xformc.trainer.parallel import rows_of

KIND = "average"
"""Its name among an optimizer's states of a parameter. In a checkpoint, the weights are the average, and this is what
training goes on with."""


@torch.no_grad()
def update_average(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Move the average of each parameter by `1 - decay` towards it, and further in the first steps."""
    part = 1.0 - min(decay, (1 + step) / (10 + step))
    averages, parameters = list[Tensor](), list[Tensor]()
    for parameter, state in optimizer.state.items():
        if KIND in state:
            averages.append(rows_of(state[KIND]).tensor)
            parameters.append(rows_of(parameter.detach()).tensor)
        else:
            state[KIND] = parameter.detach().clone()
    if averages:
        cast(Any, torch)._foreach_lerp_(averages, parameters, part)


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Exchange the parameters with their averages, if there are any, for the time of the block."""
    exchange(optimizer)
    try:
        yield
    finally:
        exchange(optimizer)


@torch.no_grad()
def exchange(optimizer: torch.optim.Optimizer) -> None:
    """Exchange the parameters with their averages, if there are any."""
    for parameter, state in optimizer.state.items():
        if KIND in state:
            trained: Tensor = parameter.detach().clone()
            parameter.copy_(state[KIND])
            state[KIND].copy_(trained)
