"""Synthetic speech: the ten digits spoken by a formant synthesizer, as frames of a log filterbank.

A digit is a sequence of sounds. A voiced sound is the harmonics of a pitch shaped by the sound's three formants (vowels
as measured by Peterson and Barney, 1952); a voiceless sound is noise shaped by them. Pitch, vocal tract length, the
duration of each sound and the background noise are drawn for every spoken digit. Frames are windows of 25 ms every
10 ms, with 20 bands on the mel scale (Davis and Mermelstein, 1980).
"""

from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.splits import TEST, VALID, split_rows, write_arrays

RATE = 8_000
WINDOW, HOP, SPECTRUM, BANDS = 200, 80, 256, 20
SECONDS = (0.05, 0.12)
NOISE = (0.5, 2.0)
TRAIN = 2_000
SOUNDS: dict[str, tuple[tuple[int, int, int], bool]] = {
    "i": ((270, 2290, 3010), True),
    "I": ((390, 1990, 2550), True),
    "E": ((530, 1840, 2480), True),
    "V": ((640, 1190, 2390), True),
    "O": ((570, 840, 2410), True),
    "u": ((300, 870, 2240), True),
    "A": ((730, 1090, 2440), True),
    "r": ((490, 1350, 1690), True),
    "n": ((250, 1450, 2300), True),
    "w": ((290, 610, 2150), True),
    "v": ((220, 1100, 2080), True),
    "z": ((240, 1400, 3400), True),
    "s": ((2500, 3300, 3800), False),
    "f": ((1100, 2100, 3600), False),
    "t": ((1800, 2600, 3700), False),
    "k": ((1300, 1900, 2500), False),
}
"""The formants in Hz of each sound, in X-SAMPA, and whether it is voiced."""

DIGITS = {
    "zero": "zIrOu",
    "one": "wVn",
    "two": "tu",
    "three": "fri",
    "four": "fOr",
    "five": "fAiv",
    "six": "sIks",
    "seven": "sEvn",
    "eight": "Eit",
    "nine": "nAin",
}


def write(folder: Path, seed: int) -> None:
    """Write train.npz, valid.npz and test.npz.

    frames: float32 [n, longest, 20], padded with 0. frames_lengths: int64 [n]. labels: the digits' names [n].
    """
    random = np.random.default_rng(seed)
    count = TRAIN + VALID + TEST
    labels = random.choice(list(DIGITS), count)
    spoken = [filterbank(say(random, str(label))) for label in labels]
    lengths = np.array([len(frames) for frames in spoken])
    frames = np.zeros((count, lengths.max(), BANDS), np.float32)
    for row, found in enumerate(spoken):
        frames[row, : len(found)] = found
    arrays = {"frames": frames, "frames_lengths": lengths, "labels": labels}
    write_arrays(folder, split_rows(arrays, np.arange(count)))


def say(random: np.random.Generator, digit: str, noise: tuple[float, float] = NOISE) -> np.ndarray:
    """Return a spoken digit as a wave [samples], with noise in this range of its deviation."""
    pitch, tract = random.uniform(90, 220), random.uniform(0.85, 1.15)
    wave = np.concatenate([_sound(random, sound, pitch, tract) for sound in DIGITS[digit]])
    return wave + random.normal(0, random.uniform(*noise) * wave.std(), len(wave))


def filterbank(wave: np.ndarray) -> np.ndarray:
    """Return the log energies of each frame [frames, bands], normalized over the utterance."""
    windows = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP] * np.hamming(WINDOW)
    power = np.abs(np.fft.rfft(windows, SPECTRUM)) ** 2
    energies = np.log(power @ mel_bands().T + 1e-6)
    return ((energies - energies.mean()) / energies.std()).astype(np.float32)


@cache
def mel_bands() -> np.ndarray:
    """Triangles of equal width on the mel scale [bands, frequencies]."""
    low, high = 2595 * np.log10(1 + np.array([100, RATE / 2]) / 700)
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    left, centre, right = (edges[first : first + BANDS, None] for first in range(3))
    frequencies = np.fft.rfftfreq(SPECTRUM, 1 / RATE)
    return np.clip(
        np.minimum((frequencies - left) / (centre - left), (right - frequencies) / (right - centre)), 0, None
    )


def _sound(random: np.random.Generator, sound: str, pitch: float, tract: float) -> np.ndarray:
    formants, voiced = SOUNDS[sound]
    count = int(random.uniform(*SECONDS) * RATE)
    time = np.arange(count) / RATE
    spread = random.uniform(0.97, 1.03)
    frequencies = np.arange(pitch, RATE / 2, pitch) if voiced else random.uniform(100, RATE / 2, 80)
    gains = sum(1 / (1 + ((frequencies - tract * spread * formant) / 120) ** 2) for formant in formants)
    phases = random.uniform(0, 2 * np.pi, len(frequencies))
    wave = np.sin(2 * np.pi * np.outer(time, frequencies) + phases) @ gains
    return wave / wave.std() * np.hanning(count + 2)[1:-1] ** 0.3
