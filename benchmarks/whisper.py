"""Compares an imported Whisper with CTranslate2's on sounds that espeak-ng speaks: the texts, and the word error rates.

python -m benchmarks.whisper ENGINE MODEL TEXTS [--voice en-us] [--beam-size 5]

MODEL is CTranslate2's folder, TEXTS has a line for each sound. Needs espeak-ng, ctranslate2, transformers and xformc.
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.imports.examples import features
from xformc.runtime.engine import load
from xformc.runtime.media.wav import cut, read_wav
from xformc.trainer.scores.metrics import edit_distance

RATE, HOP, WINDOW, MELS, SECONDS = 16000, 160, 400, 80, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--voice", default="en-us")
    parser.add_argument("--beam-size", type=int, default=5)
    given = parser.parse_args()
    spoken = given.texts.read_text(encoding="utf-8").splitlines()
    sounds = [speak(text, given.voice) for text in spoken]
    texts = {"xformc": ours(given.engine, sounds, given.beam_size)}
    texts["ctranslate2"] = theirs(given.model, sounds, given.beam_size)
    same = sum(one == other for one, other in zip(*texts.values(), strict=True))
    print(f"{len(spoken)} sounds, {sum(map(len, sounds)) / RATE:.0f} s; {same} texts are the same")
    for name, found in texts.items():
        pairs = [(words(text), words(wanted)) for text, wanted in zip(found, spoken, strict=True)]
        errors, count = sum(edit_distance(*pair) for pair in pairs), sum(len(wanted) for _, wanted in pairs)
        print(f"{name}: word error rate {errors / count:.3f} ({errors} of {count} words)")
    for wanted, mine, its in zip(spoken, *texts.values(), strict=True):
        if mine != its:
            print(f"spoken: {wanted}\n  xformc: {mine}\n  ctranslate2: {its}")


def speak(text: str, voice: str) -> NDArray[np.float32]:
    """The samples of a spoken text, at 16 kHz."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "spoken.wav"
        subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", path, text], check=True)
        rate, samples = read_wav(path)
    size = len(samples) * RATE // rate
    spectrum = np.fft.rfft(samples)[: size // 2 + 1]
    return (np.fft.irfft(spectrum, size) * (size / len(samples))).astype(np.float32)


def ours(folder: Path, sounds: list[NDArray[np.float32]], beam_size: int) -> list[str]:
    found: list[str] = []
    with load(folder, threads=1) as engine:
        for sound in sounds:
            wave = cut(sound, HOP)
            given = {"wave": wave[None], "wave_lengths": np.array([len(wave)])}
            [[best]] = engine.transcribe(given, beam_size=beam_size)
            found.append(best.text.strip())
    return found


def theirs(folder: Path, sounds: list[NDArray[np.float32]], beam_size: int) -> list[str]:
    import ctranslate2  # pyright: ignore[reportMissingImports]  # of the extra bench
    import tokenizers

    model: Any = ctranslate2.models.Whisper(str(folder), intra_threads=1)
    speller: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    start = [speller.token_to_id(token) for token in ("<|startoftranscript|>", "<|notimestamps|>")]
    extract, found = features(MELS, SECONDS * RATE, RATE, HOP, WINDOW), list[str]()
    for sound in sounds:
        array = extract([sound], sampling_rate=RATE, return_tensors="np").input_features
        given = ctranslate2.StorageView.from_array(np.ascontiguousarray(array, np.float32))
        [result] = model.generate(given, [start], beam_size=beam_size)
        found.append(speller.decode(result.sequences_ids[0]).strip())
    return found


def words(text: str) -> list[str]:
    """The words of a text, in lower case without punctuation."""
    return re.findall(r"[\w']+", text.lower())


if __name__ == "__main__":
    main()
