"""Muon (Jordan et al. 2024) for the weights of linear maps, and another optimizer for all others.

A weight with several axes, such as heads, is the matrix of its linear map. All matrices of one shape are computed at
once: a GPU is launched once for them, and not once for each.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod, sqrt
from typing import Any, cast

import torch
from torch import Tensor, nn

from xformc.compiler.spec.sections import Muon
from xformc.trainer.parallel import part_like, rows_of, whole_of
from xformc.trainer.rates import ALIKE, Rates, split_by_rate

BUFFER = "momentum_buffer"
"""The name of the momentum, as in torch's Muon."""

LARGEST_BATCH = 2**25
"""Elements of the matrices that are computed at once; one that is larger is computed alone."""

ITERATIONS, COEFFICIENTS, EPSILON = 5, (3.4445, -4.7750, 2.0315), 1e-7
"""Those of the iteration (Jordan et al. 2024), and the lower bound of a norm."""

UPDATE_RMS = 0.2
"""The root mean square of AdamW's updates (Liu et al. 2025, section 2.2)."""


class MuonOptimizer(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, with Nesterov's momentum) on the matrices of weights, and `others` beside it.

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
        super().__init__([*matrices], {"lr": 0.0, "momentum": section.momentum, "weight_decay": section.weight_decay})
        split_by_rate(self, rates)
        self._inputs = {weight: prod(weight.shape[weight.ndim - axes :]) for weight, axes in matrices.items()}
        self._batches = [(group, batch) for group in self.param_groups for batch in self._batched(group["params"])]
        self._others = others
        self.param_groups += [] if others is None else others.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter; states may have been replaced by those of a checkpoint."""
        assert closure is None
        for group, weights in self._batches:
            self._step(group, weights)
        if self._others is not None:
            for group in self._others.param_groups:
                for parameter in group["params"]:
                    self._others.state[parameter] = self.state[parameter]
            self._others.step()

    def _batched(self, weights: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
        """Weights whose matrices have one shape, as many as are computed at once; one in parts is alone."""
        alike: dict[tuple[int, int, nn.Parameter | None], list[nn.Parameter]] = defaultdict(list)
        for weight in weights:
            alone = weight if rows_of(weight).in_parts else None
            alike[weight.numel(), self._inputs[weight], alone].append(weight)
        for (size, _, _), found in alike.items():
            most = max(1, LARGEST_BATCH // size)
            yield from (found[first : first + most] for first in range(0, len(found), most))

    def _step(self, group: Mapping[str, Any], weights: Sequence[nn.Parameter]) -> None:
        """Update weights as their matrices, which share the memory of whole weights."""
        momenta = [self._momentum(weight) for weight in weights]
        wholes = [whole_of(weight.data) for weight in weights]
        gradients = [whole_of(_gradient(weight)) for weight in weights]
        inputs = self._inputs[weights[0]]
        _update(
            [one.view(-1, inputs) for one in wholes],
            [one.reshape(-1, inputs) for one in gradients],
            [one.view(-1, inputs) for one in momenta],
            group,
        )
        for weight, whole, momentum in zip(weights, wholes, momenta, strict=True):
            if rows_of(weight).in_parts:
                weight.copy_(part_like(weight, whole))
                self.state[weight][BUFFER] = part_like(weight, momentum)

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        """The whole momentum, which is 0 at first."""
        state = self.state[weight]
        if BUFFER not in state:
            state[BUFFER] = torch.zeros_like(weight)
        return whole_of(state[BUFFER])


def _gradient(weight: nn.Parameter) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def _update(
    matrices: Sequence[Tensor], gradients: Sequence[Tensor], momenta: Sequence[Tensor], group: Mapping[str, Any]
) -> None:
    """Move the momenta of matrices of one shape, and the matrices by the orthogonal part of what comes next."""
    rate, momentum, foreach = group["lr"], group["momentum"], cast(Any, torch)
    foreach._foreach_lerp_(momenta, gradients, 1 - momentum)
    ahead = torch.stack(foreach._foreach_lerp(gradients, momenta, momentum))
    changes = orthogonal(ahead).to(ahead.dtype, memory_format=torch.contiguous_format)
    foreach._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
    foreach._foreach_add_(matrices, changes.unbind(), alpha=-rate * UPDATE_RMS * sqrt(max(changes.shape[1:])))


def orthogonal(matrices: Tensor) -> Tensor:
    """Each of the matrices [count, rows, columns] with singular values of about 1, in bfloat16.

    The iteration (Newton-Schulz; Jordan et al. 2024) takes them to between 0.7 and 1.2, and keeps the vectors.
    """
    linear, cubic, quintic = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.bfloat16()
    if tall:
        x = x.mT
    norms = cast(Tensor, torch.norm(x, dim=(1, 2), keepdim=True))  # pyright: ignore[reportUnknownMemberType]
    x = x / torch.clamp_min(norms, EPSILON)
    for _ in range(ITERATIONS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return x.mT if tall else x
