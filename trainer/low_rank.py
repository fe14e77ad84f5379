"""Updates of low rank (LoRA): a weight changes by the product of two narrow matrices, which are all that is learned.

The model has the whole weight at any moment, so checkpoints, averages and engines need nothing else; the factors are
states of the optimizer. The gradient of the weight, which backward computes, gives those of the factors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.ops.roundable import linear_axes
from xformc.compiler.spec import Spec
from xformc.trainer.optimizers import optimizer_of
from xformc.trainer.rates import rates_in


@dataclass(frozen=True)
class Factors:
    """The change of `weight`, as a matrix [out, in]: `scale * up @ down`, with up [out, rank] and down [rank, in]."""

    weight: nn.Parameter
    up: nn.Parameter
    down: nn.Parameter
    scale: float

    def named(self) -> Mapping[str, nn.Parameter]:
        """The factors by the beginning of the names of their states."""
        return {"up": self.up, "down": self.down}

    def change(self) -> Tensor:
        """The change so far [out, in]."""
        return self.scale * (self.up @ self.down)


def low_rank_optimizer(spec: Spec, model: nn.Module, seed: int) -> torch.optim.Optimizer:
    """The optimizer of a spec with `train.low_rank`: of the factors, and of the parameters that are trained whole."""
    section, axes, adapted = spec.train.low_rank, linear_axes(spec.graph()), spec.low_rank_weights()
    assert section is not None
    draw = torch.Generator().manual_seed(seed)
    factors, whole, rates = list[Factors](), list[nn.Parameter](), dict(rates_in(model, spec.learning_rates()))
    for path, parameter in parameters_by_path(model).items():
        if not parameter.requires_grad:
            continue
        if path in adapted:
            factors.append(_factors(parameter, axes[path], section.rank, section.scale, draw))
            rates |= dict.fromkeys(factors[-1].named().values(), rates.get(parameter, 1.0))
        else:
            whole.append(parameter)
    learned = [*whole, *(one for each in factors for one in (each.up, each.down))]
    return LowRankOptimizer(factors, whole, optimizer_of(spec.train.optimizer, learned, rates))


def _factors(weight: nn.Parameter, axes: int, rank: int, scale: float, draw: torch.Generator) -> Factors:
    """Factors whose product is 0: `up` is 0, `down` uniform (Hu et al. 2022, section 4.1; as `nn.Linear`'s weights)."""
    inputs = prod(weight.shape[weight.ndim - axes :])
    bound = inputs**-0.5
    down = torch.empty(rank, inputs).uniform_(-bound, bound, generator=draw).to(weight.device)
    up = torch.zeros(weight.numel() // inputs, rank, device=weight.device)
    return Factors(weight, nn.Parameter(up), nn.Parameter(down), scale)


class LowRankOptimizer(torch.optim.Optimizer):
    """LoRA (Hu et al. 2022, equation 3) on whole weights: each step of the factors moves the weight by their change.

    `inner` is the optimizer of the factors and of the parameters that are trained `whole`. The state of a weight is its
    factors, `up` and `down`, and their states in `inner`, such as `up_exp_avg`.
    """

    def __init__(self, factors: Sequence[Factors], whole: Sequence[nn.Parameter], inner: torch.optim.Optimizer) -> None:
        super().__init__([*whole, *(one.weight for one in factors)], {})
        self._factors, self._inner = list(factors), inner
        self.param_groups = inner.param_groups
        for one in self._factors:
            self.state[one.weight].update({name: factor.data for name, factor in one.named().items()})
        for parameter in whole:
            self.state[parameter] = inner.state[parameter]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the weights, too."""
        self._inner.zero_grad(set_to_none)
        for one in self._factors:
            one.weight.grad = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the factors, and every weight by the change of their product."""
        assert closure is None
        before = [self._began(one) for one in self._factors]
        self._inner.step()
        for one, old in zip(self._factors, before, strict=True):
            one.weight.add_((one.change() - old).reshape(one.weight.shape))
            for name, factor in one.named().items():
                states = {f"{name}_{kind}": value for kind, value in self._inner.state[factor].items()}
                self.state[one.weight].update({name: factor.data, **states})

    def _began(self, one: Factors) -> Tensor:
        """Give the factors gradients, and their states, which a checkpoint may have replaced.

        Return the change so far.
        """
        state = self.state[one.weight]
        for name, factor in one.named().items():
            factor.data = state[name]
            start = f"{name}_"
            self._inner.state[factor] = {
                kind.removeprefix(start): value for kind, value in state.items() if kind.startswith(start)
            }
        gradient = one.weight.grad
        assert gradient is not None
        matrix = gradient.reshape(one.up.shape[0], one.down.shape[1])
        one.up.grad, one.down.grad = one.scale * matrix @ one.down.T, one.scale * one.up.T @ matrix
        return one.change()
