"""Measures the limits of a device: bytes and bfloat16 operations per second."""

import torch

from benchmarks.gpu.report import device_name, seconds_of

ROUNDS = 10
PEAKS = {"H100 PCIe": 756e12, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bfloat16 operations per second, by a part of the GPU's name, from NVIDIA's data sheets."""


def bandwidth(device: torch.device, size: int) -> float:
    """Return bytes per second, the best of several copies of `size` bytes, each of which is read and written."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    best = min(seconds_of(lambda: target.copy_(source), device) for _ in range(ROUNDS))
    return 2 * source.nbytes / best


def product_rate(device: torch.device, size: int) -> float:
    """Return operations per second, the best of several products of two square bfloat16 matrices."""
    one, other = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    best = min(seconds_of(lambda: one @ other, device) for _ in range(ROUNDS))
    return 2 * size**3 / best


def peak(device: torch.device) -> float | None:
    """Return the data sheet's bfloat16 operations per second, or None for a device that is not in the table."""
    name = device_name(device)
    return next((value for part, value in PEAKS.items() if part in name), None)
