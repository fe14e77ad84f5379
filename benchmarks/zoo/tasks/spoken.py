"""Spoken digit strings: .wav files in which a few digits follow each other, and the digits' names.

Each digit is that of the task `speech`, with its own voice, after a pause of noise. The noise is lower than there.
"""

import wave
from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.speech import DIGITS, RATE, say
from benchmarks.zoo.tasks.splits import TEST, VALID, write_columns

TRAIN = 1_500
MOST_DIGITS = 4
NOISE = (0.05, 0.3)
PAUSE = (0.02, 0.1)
LEVEL = (0.1, 0.9)


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv, each with the .wav files that it names in a folder of its name."""
    random = np.random.default_rng(seed)
    splits: dict[str, list[tuple[str, ...]]] = {}
    for split, count in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        (folder / split).mkdir(parents=True)
        splits[split] = []
        for index in range(count):
            digits = [str(digit) for digit in random.choice(list(DIGITS), random.integers(1, MOST_DIGITS + 1))]
            name = f"{split}/{index:04}.wav"
            write_wav(folder / name, utter(random, digits))
            splits[split].append((name, " ".join(digits)))
    write_columns(folder, splits)


def utter(random: np.random.Generator, digits: list[str]) -> np.ndarray:
    """Return the digits one after the other as a wave [samples], from -1 to 1."""
    parts: list[np.ndarray] = [np.zeros(_pause(random))]
    for digit in digits:
        parts += [say(random, digit, NOISE), np.zeros(_pause(random))]
    samples = np.concatenate(parts)
    samples += random.normal(0, 0.02 * samples.std(), len(samples))
    return samples / np.abs(samples).max() * random.uniform(*LEVEL)


def write_wav(path: Path, samples: np.ndarray) -> None:
    """Write samples from -1 to 1 as 16-bit PCM."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def _pause(random: np.random.Generator) -> int:
    return int(random.uniform(*PAUSE) * RATE)
