"""Muon (Jordan et al. 2024) for the weights of linear maps, and AdamW for all others.

Torch's Muon takes matrices only: a weight with several axes, such as heads, is the matrix of its linear map.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from xformc.compiler.spec.sections import Muon
from xformc.errors import UserError
from xformc.trainer.parallel import part_like, rows_of, whole_of
from xformc.trainer.rates import ALIKE, Rates, split_by_rate

SINCE = "2.9"
"""The first version of PyTorch that has Muon."""

BUFFER = "momentum_buffer"
"""Torch's name of the momentum."""


class MuonOptimizer(torch.optim.Optimizer):
    """Torch's Muon on the matrices of weights, and an optimizer of the other parameters.

    `matrices` has the number of last axes that are the inputs, by weight. The rate of a matrix is scaled so that its
    updates have the size of AdamW's (Liu et al. 2025, section 2.2): one schedule is right for both. The state of a
    weight is its momentum. A weight of which each process has a part is updated whole by all of them, one at a time:
    the iteration needs all of its rows.
    """

    def __init__(
        self,
        section: Muon,
        matrices: Mapping[nn.Parameter, int],
        others: torch.optim.Optimizer | None,
        rates: Rates = ALIKE,
    ) -> None:
        made: Any = getattr(torch.optim, "Muon", None)
        if made is None:
            message = f"train.optimizer: muon needs PyTorch {SINCE} or newer; this is {torch.__version__}"
            raise UserError(message, hint="upgrade PyTorch, or choose adamw")
        rest: Sequence[Any] = (
            [] if others is None else [one for group in others.param_groups for one in group["params"]]
        )
        super().__init__([*matrices, *rest], {})
        self._axes, self._others = matrices, others
        self._views = {weight: nn.Parameter(_nothing(weight)) for weight in matrices}
        self._muons: dict[nn.Parameter, torch.optim.Optimizer] = {}
        for weight, view in self._views.items():
            self._muons[weight] = made(
                [view],
                lr=0.0,
                weight_decay=section.weight_decay,
                momentum=section.momentum,
                adjust_lr_fn="match_rms_adamw",
            )
            split_by_rate(self._muons[weight], {view: rates.get(weight, 1.0)})
        self.param_groups = [group for muon in self._muons.values() for group in muon.param_groups]
        self.param_groups += [] if others is None else others.param_groups
        for parameter in rest:
            self.state[parameter] = others.state[parameter] if others is not None else {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the weights, too."""
        for weight in self._views:
            weight.grad = None
        if self._others is not None:
            self._others.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter; states may have been replaced by those of a checkpoint."""
        assert closure is None
        for weight in self._views:
            self._step(weight)
        if self._others is not None:
            for group in self._others.param_groups:
                for parameter in group["params"]:
                    self._others.state[parameter] = self.state[parameter]
            self._others.step()

    def _step(self, weight: nn.Parameter) -> None:
        """Update a weight as its matrix, which shares the memory of a whole weight."""
        view, muon, state = self._views[weight], self._muons[weight], self.state[weight]
        inputs = prod(weight.shape[weight.ndim - self._axes[weight] :])
        assert weight.grad is not None
        view.data, view.grad = whole_of(weight.data).view(-1, inputs), whole_of(weight.grad).reshape(-1, inputs)
        if BUFFER in state:
            muon.state[view][BUFFER] = whole_of(state[BUFFER]).reshape(-1, inputs)
        muon.step()
        updated, momentum = view.data.view(weight.shape), muon.state[view][BUFFER].view(weight.shape)
        if rows_of(weight).in_parts:
            weight.copy_(part_like(weight, updated))
        state[BUFFER] = part_like(weight, momentum)
        view.data, view.grad = _nothing(weight), None
        muon.state[view].clear()


def _nothing(weight: torch.Tensor) -> torch.Tensor:
    """A matrix without numbers, where the weight is."""
    return torch.empty((0, 0), device=weight.device)
