"""Sounds and .wav files for tests."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODINGS = {(1, 16): "<i2", (1, 24): "<i4", (1, 32): "<i4", (3, 32): "<f4"}

ENERGIES = """\
sizes: {sample_rate: 8000, hop: 80, window: 200, bins: 1 + window / 2, mels: 4}
inputs: {wave: {vectors: hop, rate: sample_rate}}
results: {energies: {numbers: mean}}
model:
  energies: {from: wave, do: [log_mel, mean]}
  mean: {from: energies, do: {gain: {weight: {axes: mels, initial: one}}, scaled: {times: energies}}}
train: {schedule: {peak: 0.001}}
"""
"""A spec whose engine returns the mean energies of the bands of a sound."""


def wav(
    samples: NDArray[np.floating[Any]], *, rate: int = 8000, code: int = 1, bits: int = 16, extensible: bool = False
) -> bytes:
    """A .wav file of samples [n] or [n, channels] from -1 to 1."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    full = 2.0 ** (bits - 1)
    numbers = samples if code == 3 else np.clip(np.round(samples * full), -full, full - 1)
    content = numbers.astype(CODINGS[code, bits]).tobytes()
    if bits == 24:
        content = b"".join(content[at : at + 3] for at in range(0, len(content), 4))
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else code, channels, rate, rate * block, block, bits)
    if extensible:
        form += struct.pack("<HHIH", 22, bits, 0, code) + bytes.fromhex("000000001000800000aa00389b71")
    return riff(part(b"fmt ", form), part(b"note", b"odd"), part(b"data", content))


def riff(*parts: bytes) -> bytes:
    """A file of these parts."""
    whole = b"WAVE" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


def part(name: bytes, content: bytes) -> bytes:
    """A part of a file, padded to an even size."""
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def tone(count: int, pitch: float = 440.0, rate: int = 8000) -> NDArray[np.float32]:
    """A sine at a quarter of full scale [count]."""
    return (0.25 * np.sin(2 * np.pi * pitch * np.arange(count) / rate)).astype(np.float32)


def write_wav(path: Path, samples: NDArray[np.float32], **form: Any) -> Path:
    """Write a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav(samples, **form))
    return path
