"""Dropout for training on CPUs: draws 16 random bits per element, where torch draws a double."""

from typing import Any

import torch
from torch import Tensor, nn

LEVELS = 2**16
"""The resolution of the probability."""


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Like `nn.functional.dropout`, but a few times as fast in eager mode on a CPU.

    There, `probability` is rounded to a multiple of 2^-16. The mask is determined by the state of torch's generator.
    """
    if not training or probability == 0.0 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return nn.functional.dropout(x, probability, training)
    function: Any = _Dropout
    return function.apply(x, round(probability * LEVELS))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        x, dropped = arguments
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        mask = (bits >= dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask, None
