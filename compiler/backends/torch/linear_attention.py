"""Linear attention for all positions at once: matrix products within chunks of positions, and a scan over the chunks.

The states are sums of outer products of keys and values that decay, and only their products with queries count. Within
a chunk these are products of queries and keys, as in attention; what comes from earlier chunks is one matrix for each
(Hua et al., 2022, section 3.4; with decay, Dao and Gu, 2024, section 6; with a decay for each number of the key, Yang
et al., 2024, section 4). The states of single positions never exist.
"""

from math import log
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from xformc.compiler.backends.torch.linear_scan import LARGEST_PRODUCT, linear_scan

LEAST, KEYED_CHUNK = 1e-9, 32
"""With a factor for each number of the key, smaller factors count as LEAST, so that their products are not zero in
float64 for as many positions: what is left of a state is then below the precision of float32."""


def linear_attention(query: Tensor, key: Tensor, value: Tensor, factors: Tensor | None, chunk: int) -> Tensor:
    """`query[t] . s[t]` for the states `s[t] = factors[t] * s[t - 1] + key[t] value[t]^T`.

    query and key [.., positions, width], value [.., positions, columns], factors [.., positions or 1, width or 1], or
    None for 1; the leading axes are broadcast. Computes `chunk` positions at once, and in float32 at least.
    torch.compile leaves it as it is: the number of operations depends on the number of positions.
    """
    run: Any = cast(Any, torch.compiler).disable(_run)
    return run(query, key, value, factors, chunk)


def _run(query: Tensor, key: Tensor, value: Tensor, factors: Tensor | None, chunk: int) -> Tensor:
    dtype = torch.promote_types(torch.promote_types(query.dtype, value.dtype), torch.float32)
    count = key.shape[-2]
    size = min(chunk, count, _most(factors))
    keyed = factors is not None and factors.shape[-1] > 1
    wide, size = torch.float64 if keyed else dtype, min(size, KEYED_CHUNK) if keyed else size
    with torch.autocast(query.device.type, enabled=False):
        q, k, v = (_chunks(each.to(wide), size) for each in (query, key, value))
        if factors is None:
            result = _attend(q, k, v)
        elif keyed:
            result = _attend_keyed(q, k, v, _products(factors.to(wide), count, size)).to(dtype)
        else:
            result = _attend(q, k, v, _decays(factors.to(wide), count, size))
        return result.flatten(-3, -2)[..., :count, :]


def _most(factors: Tensor | None) -> int:
    """The most positions of which the product of factors is finite."""
    largest = 0.0 if factors is None else float(factors.detach().abs().max())
    return max(1, int(LARGEST_PRODUCT / log(largest))) if largest > 1 else 2**31


def _chunks(x: Tensor, size: int, value: float = 0.0) -> Tensor:
    """The positions in chunks, the last one padded: [.., chunks, size, width]."""
    padded: Tensor = cast(Any, functional).pad(x, (0, 0, 0, -x.shape[-2] % size), value=value)
    return cast(Any, padded).unflatten(-2, (-1, size))


def _decays(factors: Tensor, count: int, size: int) -> Tensor:
    """The products of the factors after position s up to t of each chunk, and for s = -1 of all: [.., t, s + 1].

    They are products of factors, not quotients, so that factors may be zero.
    """
    every = factors.expand(*factors.shape[:-2], count, 1)
    later = torch.ones(size, size + 1, dtype=torch.bool, device=factors.device).tril()
    return torch.where(later, _chunks(every, size, 1.0), 1.0).cumprod(-2)


def _products(factors: Tensor, count: int, size: int) -> Tensor:
    """The products of the factors up to each position of a chunk, none of which counts as less than LEAST."""
    least = torch.where(factors < 0, -LEAST, LEAST)
    larger = factors + (torch.where(factors.abs() < LEAST, least, factors) - factors).detach()
    every = larger.expand(*larger.shape[:-2], count, larger.shape[-1])
    return _chunks(every, size, 1.0).cumprod(-2)


def _attend(query: Tensor, key: Tensor, value: Tensor, decays: Tensor | None = None) -> Tensor:
    scores = (query @ key.mT).tril()
    if decays is None:
        return scores @ value + _earlier(query, key, value, key.new_ones([1] * key.dim()))
    fading, left = query * decays[..., :1], key * decays[..., -1:, 1:].mT
    return (scores * decays[..., 1:]) @ value + _earlier(fading, left, value, decays[..., -1:, :1])


def _attend_keyed(query: Tensor, key: Tensor, value: Tensor, products: Tensor) -> Tensor:
    fading, grown, last = query * products, key / products, products[..., -1:, :]
    return (fading @ grown.mT).tril() @ value + _earlier(fading, grown * last, value, last.mT)


def _earlier(query: Tensor, key: Tensor, value: Tensor, factors: Tensor) -> Tensor:
    """What the chunks before each chunk add, for queries, keys and factors that have decayed to its ends."""
    added = key.mT @ value
    start = torch.zeros_like(added[..., :1, :, :])
    states = linear_scan(added, factors, start, added.dim() - 3, reverse=False)
    return query @ torch.cat((start, states[..., :-1, :, :]), -3)
