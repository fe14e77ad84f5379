"""The optimizers of recipes, as torch optimizers; the loop sets their learning rates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.ops.roundable import linear_axes
from xformc.compiler.spec.sections import Adam, AdamW, Lion, Muon, Optimizer
from xformc.trainer.muon import MuonOptimizer
from xformc.trainer.rates import ALIKE, Rates, rates_in, split_by_rate


def make_optimizer(
    chosen: Optimizer, model: torch.nn.Module, parts: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimizer over all parameters of `model`; `parts` are those of the schedule's rate, by path."""
    section, rates = chosen.chosen, rates_in(model, parts or {})
    if isinstance(section, Muon):
        return _muon(section, model, rates)
    return optimizer_of(chosen, list(model.parameters()), rates)


def _muon(section: Muon, model: torch.nn.Module, rates: Rates) -> torch.optim.Optimizer:
    """Muon for the linear maps inside the model; the output's is a part of the loss, and not among them."""
    assert isinstance(model, TorchModule)
    axes, matrices, others = linear_axes(model.graph), dict[torch.nn.Parameter, int](), list[torch.nn.Parameter]()
    for path, parameter in parameters_by_path(model).items():
        if parameter.requires_grad and path in axes:
            matrices[parameter] = axes[path]
        else:
            others.append(parameter)
    adamw = Optimizer(adamw=section.adamw)
    if not matrices:
        return optimizer_of(adamw, others, rates)
    return MuonOptimizer(section, matrices, optimizer_of(adamw, others, rates) if others else None, rates)


def optimizer_of(
    chosen: Optimizer, parameters: Sequence[torch.nn.Parameter], rates: Rates = ALIKE
) -> torch.optim.Optimizer:
    """The optimizer over these parameters.

    Weight decay is that of parameters with two or more axes; gains and biases have none.
    """
    optimizer = _unrated(chosen, parameters)
    split_by_rate(optimizer, rates)
    return optimizer


def _unrated(chosen: Optimizer, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    section = chosen.chosen
    if isinstance(section, Adam):
        betas = (section.beta1, section.beta2)
        return torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=section.epsilon, fused=True)
    assert isinstance(section, AdamW | Lion)
    betas = (section.beta1, section.beta2)
    groups: list[dict[str, Any]] = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": section.weight_decay},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if isinstance(section, AdamW):
        return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=section.epsilon, fused=True)
    return LionOptimizer(groups, betas)


class LionOptimizer(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, algorithm 2): the sign of an interpolated momentum, and decoupled weight decay."""

    def __init__(self, parameters: Iterable[dict[str, Any]], betas: tuple[float, float]) -> None:
        super().__init__(parameters, {"lr": 0.0, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                gradient: Tensor | None = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                average: Tensor = state["exp_avg"]
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.sub_(torch.lerp(gradient, average, first).sign_(), alpha=group["lr"])
                average.lerp_(gradient, 1.0 - second)
