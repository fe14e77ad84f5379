"""The ops: one file a family, each with every rule of its ops."""

from xformc.compiler.ops import (
    attention,
    elementwise,
    embedding,
    layout,
    linear,
    loss,
    masks,
    normalization,
    positions,
    state,
)

__all__ = [
    "attention",
    "elementwise",
    "embedding",
    "layout",
    "linear",
    "loss",
    "masks",
    "normalization",
    "positions",
    "state",
]
