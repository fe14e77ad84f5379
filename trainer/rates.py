"""Rates of single parameters: a part of the schedule's rate, which a group of an optimizer has beside its settings."""

from collections.abc import Mapping

import torch

from xformc.compiler.backends.torch.parameter_paths import parameters_by_path

PART = "part"
"""The name in a group of its part of the schedule's rate."""

Rates = Mapping[torch.nn.Parameter, float]
"""The parts of the schedule's rate; 1 for other parameters."""

ALIKE: Rates = {}


def rates_in(model: torch.nn.Module, parts: Mapping[str, float]) -> Rates:
    """The parts of the schedule's rate, which are given by path, by the parameters of the model."""
    return {one: parts[path] for path, one in parameters_by_path(model).items() if path in parts}


def split_by_rate(optimizer: torch.optim.Optimizer, rates: Rates) -> None:
    """Split the groups of an optimizer, so that each has one part of the schedule's rate."""
    optimizer.param_groups[:] = [
        {**group, "params": [one for one in group["params"] if rates.get(one, 1.0) == part], PART: part}
        for group in optimizer.param_groups
        for part in sorted({rates.get(one, 1.0) for one in group["params"]})
    ]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the schedule's rate for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(PART, 1.0)
