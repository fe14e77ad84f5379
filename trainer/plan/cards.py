"""GPUs as data: memory, peak arithmetic, and the links between the GPUs of a machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from xformc.errors import UserError


@dataclass(frozen=True)
class Card:
    """A GPU. memory: GB (10^9 bytes). bfloat16, float32: peak dense operations per second in 10^12, in matrix products;
    bfloat16 is None for a card without it, and float32 is without TF32. link: GB/s in one direction. source: where the
    figures are from."""

    memory: float
    bfloat16: float | None
    float32: float
    link: float
    source: str


CARDS: Mapping[str, Card] = {
    "p100": Card(16, None, 10.6, 80, "NVIDIA Tesla P100 whitepaper (SXM2)"),
    "v100": Card(32, None, 15.7, 150, "NVIDIA V100 datasheet (SXM2)"),
    "t4": Card(16, None, 8.1, 16, "NVIDIA T4 datasheet"),
    "a10": Card(24, 125, 31.2, 32, "NVIDIA A10 datasheet"),
    "a100-40": Card(40, 312, 19.5, 300, "NVIDIA A100 datasheet (SXM, 40 GB)"),
    "a100": Card(80, 312, 19.5, 300, "NVIDIA A100 datasheet (SXM, 80 GB)"),
    "l4": Card(24, 121, 30.3, 32, "NVIDIA L4 datasheet, without sparsity"),
    "l40s": Card(48, 362, 91.6, 32, "NVIDIA L40S datasheet, without sparsity"),
    "h100": Card(80, 989, 67, 450, "NVIDIA H100 datasheet (SXM), without sparsity"),
    "h200": Card(141, 989, 67, 450, "NVIDIA H200 datasheet (SXM), without sparsity"),
    "b200": Card(180, 2250, 75, 900, "NVIDIA DGX B200 datasheet, one of 8 GPUs, without sparsity"),
    "rtx4090": Card(24, 165, 82.6, 32, "NVIDIA Ada architecture whitepaper, sums in float32, without sparsity"),
}
"""The cards by name. Links are NVLink where the card has it, else PCIe; half of what datasheets give for both
directions."""


def card_of(name: str) -> Card:
    """The card of this name. Raises: UserError that lists the names."""
    if name not in CARDS:
        raise UserError(f"--gpu {name}: unknown card", hint=f"known are {', '.join(CARDS)}")
    return CARDS[name]


def card_called(device: str) -> Card | None:
    """The card of a device by the name that its driver gives, such as `NVIDIA H100 80GB HBM3`; None for others.

    Cards for PCIe are slower than the ones listed, and count as unknown.
    """
    words = re.split(r"[^a-z0-9]+", device.lower())
    if "pcie" in words or "nvl" in words:
        return None
    joined = [*words, *(a + b for a, b in pairwise(words))]
    return next((card for name, card in CARDS.items() if name in joined), None)
