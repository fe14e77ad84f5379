"""The ops: one file a family, each with every rule of its ops and the primitives that write them."""

from xformc.compiler.ops import (
    attention,
    contract,
    elementwise,
    embedding,
    keys,
    layout,
    linear,
    loss,
    masks,
    normalization,
    positions,
    recurrence,
    softmax,
    weights,
)

__all__ = [
    "attention",
    "contract",
    "elementwise",
    "embedding",
    "keys",
    "layout",
    "linear",
    "loss",
    "masks",
    "normalization",
    "positions",
    "recurrence",
    "softmax",
    "weights",
]
