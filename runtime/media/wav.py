"""Sounds: .wav files of PCM or float samples, at the rate of the input.

The standard library's `wave` reads no float samples, and no extensible headers before Python 3.12; libxformc needs a
reader of its own, and both give the same samples to the bit.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.media.reader import FileReader, register
from xformc.runtime.rows import Array

MOST_BYTES = 1 << 30
"""The maximum size of a file."""
MOST_CHANNELS = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
HEADER = 16


@dataclass(frozen=True)
class Coding:
    """How samples are written. Code: PCM or FLOAT. Rate: samples in a second, of each channel. Bits: of a sample."""

    code: int
    channels: int
    rate: int
    bits: int

    @property
    def block(self) -> int:
        """The bytes of one sample of every channel."""
        return self.channels * self.bits // 8


class Wav(FileReader):
    """Several channels are mixed down to their mean; samples are from -1 to 1."""

    suffixes = (".wav",)

    def reads(self, item: Input) -> bool:
        """See `FileReader`."""
        return item.rate is not None

    def read(self, path: Path, item: Input) -> Array:
        """Return the samples, as many as `item.hop` at each position, the last one padded with zeros."""
        assert item.rate is not None
        rate, samples = read_wav(path)
        if rate != item.rate:
            raise UserError(
                f"has {rate:,} samples a second; this model takes {item.rate:,}",
                place=str(path),
                hint=f"convert it, for example: ffmpeg -i {path.name} -ar {item.rate} converted.wav",
            )
        return cut(samples, item.hop)


def cut(samples: NDArray[np.float32], hop: int) -> NDArray[np.float32]:
    """Return samples [n] as [positions, hop], the last position padded with zeros."""
    positions = -(-len(samples) // hop)
    whole = np.zeros(positions * hop, np.float32)
    whole[: len(samples)] = samples
    return whole.reshape(positions, hop)


def read_wav(path: Path) -> tuple[int, NDArray[np.float32]]:
    """Return the rate and the samples [n] of a .wav file, the mean of its channels.

    Raises: OSError; UserError for a file that is damaged, too large, or has another coding.
    """
    with path.open("rb") as handle:
        data = handle.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UserError(f"larger than {MOST_BYTES:,} bytes", place=str(path), hint="cut it into shorter files")
    try:
        coding, content = _parts(data)
        samples = _mixed(coding, _DECODED[coding.code, coding.bits](content))
    except _WrongError as error:
        raise UserError(f"not a .wav file that can be read: {error}", place=str(path), hint=error.hint) from error
    return coding.rate, samples


_CONVERT = "convert it, for example: ffmpeg -i INPUT -c:a pcm_s16le OUTPUT.wav"


class _WrongError(Exception):
    """What is wrong with a file, and what helps."""

    def __init__(self, message: str, hint: str | None = _CONVERT) -> None:
        super().__init__(message)
        self.hint = hint


def _parts(data: bytes) -> tuple[Coding, bytes]:
    """The coding and the bytes of the samples."""
    if not data:
        raise _WrongError("it is empty", hint=None)
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _WrongError("it does not begin with RIFF and WAVE")
    coding: Coding | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if size > len(data) - at:
            raise _WrongError(f"a part has {size:,} bytes, and {len(data) - at:,} follow")
        if name == b"fmt ":
            coding = _coding(data[at : at + size])
        elif name == b"data":
            if coding is None:
                raise _WrongError("its samples come before their format")
            if size == 0:
                raise _WrongError("it has no samples", hint=None)
            if size % coding.block:
                raise _WrongError(f"{size:,} bytes are no whole number of samples of {coding.block} bytes")
            return coding, data[at : at + size]
        at += size + size % 2
    raise _WrongError("it has no samples", hint=None)


def _coding(part: bytes) -> Coding:
    if len(part) < HEADER:
        raise _WrongError(f"its format has {len(part)} bytes")
    code, channels, rate, _, block, bits = struct.unpack("<HHIIHH", part[:HEADER])
    if code == EXTENSIBLE and len(part) >= HEADER + 10:
        code = int.from_bytes(part[HEADER + 8 : HEADER + 10], "little")
    if (code, bits) not in _DECODED:
        raise _WrongError(f"samples of coding {code} with {bits} bits, not PCM of 16, 24 or 32 bits or float of 32")
    if not 1 <= channels <= MOST_CHANNELS or rate == 0 or block != channels * bits // 8:
        raise _WrongError(f"{channels} channels, {rate:,} samples a second, {block} bytes")
    return Coding(code, channels, rate, bits)


def _mixed(coding: Coding, samples: NDArray[np.float64]) -> NDArray[np.float32]:
    """The mean of the channels, added in their order."""
    if not np.isfinite(samples).all():
        raise _WrongError("a sample is not a finite number", hint=None)
    total = np.zeros(len(samples) // coding.channels)
    for channel in range(coding.channels):
        total += samples[channel :: coding.channels]
    return (total / coding.channels).astype(np.float32)


def _pcm_24(content: bytes) -> NDArray[np.float64]:
    wide = np.zeros((len(content) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
    return wide.reshape(-1).view("<i4") / 2.0**31


_DECODED: dict[tuple[int, int], Callable[[bytes], NDArray[np.float64]]] = {
    (PCM, 16): lambda content: np.frombuffer(content, "<i2") / 2.0**15,
    (PCM, 24): _pcm_24,
    (PCM, 32): lambda content: np.frombuffer(content, "<i4") / 2.0**31,
    (FLOAT, 32): lambda content: np.frombuffer(content, "<f4").astype(np.float64),
}
"""The samples of each coding and number of bits, as numbers from -1 to 1."""

register(Wav())
