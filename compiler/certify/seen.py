"""Measures what a comparison of results sees: the weights that change them, and a redraw where a gate hides some."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.certify.probes import Probes, make_probes
from xformc.compiler.program import Program

PART = 0.1
"""The part of a weight's root mean square by which it is changed, or of 1 if that is smaller than 0.1."""

DRAWS = 3
"""How many times weights are drawn again at most."""


def seen_weights(module: TorchModule, probes: Probes, bound: float) -> tuple[int, int]:
    """How many of the weights that begin at random would change the results by more than `bound`, and their number.

    The change is that of a random sum of the results, to first order. Parameters that begin as constants, such as
    biases and gates, are not counted: softmax ignores the bias of a key.
    """
    weights = {item.name for item in module.graph.parameters if item.trained and item.initial.kind != "constant"}
    seen, random = set[str](), torch.Generator().manual_seed(0)
    found = {name: value for name, value in parameters_by_path(module).items() if name in weights}
    parameters: dict[str, Any] = dict(found)
    handles: list[Any] = [
        value.register_post_accumulate_grad_hook(_recorder(name, seen, bound)) for name, value in parameters.items()
    ]
    try:
        with torch.enable_grad():
            results: Any = module(*(torch.tensor(probes.feeds[value.name]) for value in module.graph.inputs))
            total: Any = torch.zeros(())
            several = cast(tuple[Any, ...], results if isinstance(results, tuple) else (results,))
            for result, real in zip(several, probes.reals, strict=True):
                rows = result[torch.tensor(np.ascontiguousarray(real))]
                signs = torch.randn(rows.shape, generator=random)
                total = total + (signs * rows / rows.detach().abs().clamp(min=1.0)).sum()
            if total.requires_grad:
                total.backward()
    finally:
        for handle in handles:
            handle.remove()
        module.zero_grad()
    return len(seen), len(weights)


def redraw(module: TorchModule, program: Program, bound: float, seed: int) -> None:
    """Add noise to the parameters that begin as constants until all weights are seen: some gates begin at zero.

    Weights behind a factor of zero in the spec itself stay unseen.
    """
    probes = make_probes(program)
    for draw in range(DRAWS):
        seen, count = seen_weights(module, probes, bound)
        if seen == count:
            return
        generator = torch.Generator().manual_seed(seed + draw)
        values = parameters_by_path(module)
        with torch.no_grad():
            for item in module.graph.parameters:
                if item.trained and item.initial.kind == "constant":
                    values[item.name].add_(PART * torch.randn(values[item.name].shape, generator=generator))


def _recorder(name: str, seen: set[str], bound: float) -> Callable[[torch.Tensor], None]:
    """A hook that notes the name if a step along the gradient's signs exceeds the bound, and frees the gradient."""

    def record(weight: torch.Tensor) -> None:
        assert weight.grad is not None
        step = PART * max(PART, float(weight.detach().square().mean().sqrt()))
        if step * float(weight.grad.abs().sum()) > bound:
            seen.add(name)
        weight.grad = None

    return record
