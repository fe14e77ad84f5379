"""Linear recurrences for all positions at once: a scan in a few operations per chunk, instead of one per position.

A step `s -> a * s + b` followed by `s -> c * s + d` is the step `s -> (c * a) * s + (c * b + d)`. The scan joins
neighbouring steps in pairs, computes the states after every pair in the same way, and then the states between them
(Blelloch, 1990): about 2 log2(n) operations for n positions. Chunks of positions follow one another, so that a chunk
stays in the cache of a processor, and so that no product of factors overflows where the states do not.
"""

from collections.abc import Sequence
from math import log
from typing import Any, cast

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**17
"""Elements of the states of a chunk on a CPU; its states and factors should fit in the CPU cache."""

LARGEST_PRODUCT = log(1e30)
"""The bound of a product of factors in a chunk, as its logarithm; float32 ends at 3.4e38."""


def linear_scan(inputs: Tensor, factors: Tensor, start: Tensor, axis: int, reverse: bool) -> Tensor:
    """The states `s[t] = factors[t] * s[t - 1] + inputs[t]`, or with s[t + 1] if `reverse`.

    inputs: the axes of the states, with the positions at `axis`; factors: broadcast to them; `start`: the state before
    the first position, with one position. Computes in float32 at least. torch.compile leaves it as it is: the number
    of operations depends on the number of positions.
    """
    run: Any = cast(Any, torch.compiler).disable(_run)
    return run(inputs, factors, start, axis, reverse)


def _run(inputs: Tensor, factors: Tensor, start: Tensor, axis: int, reverse: bool) -> Tensor:
    dtype = torch.promote_types(torch.promote_types(inputs.dtype, factors.dtype), torch.float32)
    function: Any = _LinearScan
    with torch.autocast(inputs.device.type, enabled=False):
        factors = factors[(None,) * (inputs.dim() - factors.dim())]
        moved = (value.to(dtype).movedim(axis, 0) for value in (inputs, factors, start))
        return function.apply(*moved, reverse).movedim(0, axis)


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        inputs, factors, start, reverse = arguments
        ctx.chunk, ctx.reverse = _chunk(inputs, factors), reverse
        states = inputs.clone()
        _scan_chunks(states, factors, start[0], ctx.chunk, reverse)
        ctx.save_for_backward(factors, start, states)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The gradient of state t is that of its result, plus factors[t + 1] times that of state t + 1: a scan too."""
        factors, start, states = ctx.saved_tensors
        forward, backward = slice(None, -1), slice(1, None)
        before, after, first, last = (backward, forward, -1, 0) if ctx.reverse else (forward, backward, 0, -1)
        gradient, constant = gradients[0].clone(), factors.shape[0] == 1
        later = factors if constant else factors[after]
        _scan_chunks(gradient[before], later, gradient[last], ctx.chunk, not ctx.reverse)
        change = began = None
        if ctx.needs_input_grad[1]:
            edge, inner = (gradient[first] * start[0])[None], gradient[after] * states[before]
            if constant:
                change = edge.sum_to_size(factors.shape) + inner.sum_to_size(factors.shape)
            else:
                change = torch.cat([inner, edge] if ctx.reverse else [edge, inner]).sum_to_size(factors.shape)
        if ctx.needs_input_grad[2]:
            began = (gradient[first] * factors[first])[None]
        return gradient, change, began, None


def _chunk(inputs: Tensor, factors: Tensor) -> int:
    """The positions of a chunk: as many as fit, and as few as keep products of factors finite."""
    count = inputs.shape[0]
    chunk = max(1, CHUNK_ELEMENTS // max(1, inputs[0].numel())) if inputs.device.type == "cpu" else count
    largest = float(cast(Any, torch.linalg).vector_norm(factors, float("inf")))
    if largest > 1:
        chunk = min(chunk, max(1, int(LARGEST_PRODUCT / log(largest))))
    return chunk


def _scan_chunks(states: Tensor, factors: Tensor, state: Tensor, chunk: int, reverse: bool) -> None:
    """Turn inputs into states in place, chunk after chunk, from the state before them."""
    if states.shape[0] == 0:
        return
    parts: Sequence[Tensor] = cast(Any, states).split(chunk)
    many = factors.shape[0] > 1
    given: Sequence[Tensor] = cast(Any, factors).split(chunk) if many else [factors] * len(parts)
    for part, factor in zip(*((parts[::-1], given[::-1]) if reverse else (parts, given)), strict=True):
        _scan(part, factor, state, reverse)
        state = part[0 if reverse else -1]


def _scan(states: Tensor, factors: Tensor, state: Tensor, reverse: bool) -> None:
    """Turn inputs into states in place. Positions are in pairs; with an odd number, one follows them alone."""
    count = states.shape[0]
    if count == 1:
        states[0].addcmul_(factors[0], state)
        return
    at = (count - 1) % 2 if reverse else 0
    first, second = states[at::2], states[1 - at :: 2]
    constant = factors.shape[0] == 1
    one, two = (factors, factors) if constant else (factors[at::2], factors[1 - at :: 2])
    pairs, others = count // 2, first.shape[0] - 1
    joined = slice(-pairs, None) if reverse else slice(None, pairs)
    second.addcmul_(two, first[joined])
    _scan(second, two * (one if constant else one[joined]), state, reverse)
    end = -1 if reverse else 0
    first[end].addcmul_(one[end], state)
    if others:
        rest, before = (slice(None, -1), slice(-others, None)) if reverse else (slice(1, None), slice(None, others))
        first[rest].addcmul_(one if constant else one[rest], second[before])
