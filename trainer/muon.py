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
from xformc.trainer.rates import ALIKE, Rates, split_by_rate

SINCE = "2.9"
"""The first version of PyTorch that has Muon."""


class MuonOptimizer(torch.optim.Optimizer):
    """Torch's Muon on matrices that share the memory of weights, and an optimizer of the other parameters.

    `matrices` has the number of last axes that are the inputs, by weight. The rate of a matrix is scaled so that its
    updates have the size of AdamW's (Liu et al. 2025, section 2.2): one schedule is right for both. The state of a
    weight is its momentum, as a matrix.
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
        self._views = {weight: nn.Parameter(_matrix(weight.data, axes)) for weight, axes in matrices.items()}
        self._muon: torch.optim.Optimizer = made(
            list(self._views.values()),
            lr=0.0,
            weight_decay=section.weight_decay,
            momentum=section.momentum,
            adjust_lr_fn="match_rms_adamw",
        )
        split_by_rate(self._muon, {self._views[one]: rate for one, rate in rates.items() if one in self._views})
        self._others = others
        self.param_groups = [*self._muon.param_groups, *([] if others is None else others.param_groups)]
        for parameter in rest:
            self.state[parameter] = others.state[parameter] if others is not None else {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the weights, too."""
        for parameter in (*self._views, *self._views.values()):
            parameter.grad = None
        if self._others is not None:
            self._others.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter; states may have been replaced by those of a checkpoint."""
        assert closure is None
        for weight, view in self._views.items():
            assert weight.grad is not None
            view.data, view.grad = weight.data.view(view.shape), weight.grad.reshape(view.shape)
            self._muon.state[view] = {name: value for name, value in self.state[weight].items() if name == BUFFER}
        self._muon.step()
        for weight, view in self._views.items():
            self.state[weight].update(self._muon.state[view])
        if self._others is not None:
            for group in self._others.param_groups:
                for parameter in group["params"]:
                    self._others.state[parameter] = self.state[parameter]
            self._others.step()


BUFFER = "momentum_buffer"
"""Torch's name of the momentum."""


def _matrix(weight: torch.Tensor, axes: int) -> torch.Tensor:
    return weight.view(-1, prod(weight.shape[weight.ndim - axes :]))
