"""Word error rates and times on a folder of sounds: an imported Whisper, CTranslate2's, and transformers'.

    python -m benchmarks.speech ENGINE SOUNDS MODEL [--transformers FOLDER] [--speak TEXTS] [--threads 2] [--rounds 3]

SOUNDS is a folder as `xformc evaluate` reads it: each line of its test.tsv has the name of a .wav file, a tab, and what
is said. MODEL is CTranslate2's folder, from which ENGINE was imported, and FOLDER the same model of transformers
(`xformc export hf RUN`). With --speak, espeak-ng first speaks each line of TEXTS into SOUNDS.

Sounds, none longer than the model reads, are transcribed one at a time, with the same beam and threads; the
limit, the length penalty and the suppressed tokens are those of the model's files. The systems take turns, so
that other load meets all of them; times are medians of the rounds. CTranslate2 has the precision of the engine;
the features of both others are those of transformers, and their time is counted.
"""

import argparse
import re
import statistics
import subprocess
import tempfile
import time
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.format.speech import TRANSCRIBE
from xformc.imports.examples import features
from xformc.runtime import Engine, load
from xformc.runtime.media.wav import cut, read_wav
from xformc.trainer.scores.metrics import edit_distance

HOP, WINDOW = 160, 400
TABLE = "test.tsv"

Samples = NDArray[np.float32]
System = Callable[[Samples], str]
"""From the samples of a sound to its text."""


@dataclass(frozen=True)
class Sound:
    """The samples of a sound and what is said in it."""

    samples: Samples
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("sounds", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--transformers", type=Path, metavar="FOLDER")
    parser.add_argument("--speak", type=Path, metavar="TEXTS")
    parser.add_argument("--voice", default="en-us", help="espeak-ng's voice")
    parser.add_argument("--language", default="en", help="of a model that knows several")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with load(given.engine, threads=given.threads) as engine:
        (sound,) = (item for item in engine.manifest.given.values() if item.rate is not None)
        rate = sound.rate or 0
        if given.speak is not None:
            speak(given.speak.read_text(encoding="utf-8").splitlines(), given.sounds, given.voice, rate)
        sounds = read_sounds(given.sounds, rate)
        speech = engine.manifest.speech
        assert speech is not None, "the engine is no model of speech with a longest sound"
        longest = max(len(sound.samples) for sound in sounds) / rate
        assert longest <= speech.seconds, f"a sound has {longest:.0f} s; the others read only {speech.seconds:g}"
        systems: dict[str, System] = {"xformc": partial(ours, engine, given)}
        systems["ctranslate2"] = ctranslate2_whisper(engine, given)
        if given.transformers is not None:
            systems["transformers"] = transformers_whisper(engine, given)
        report(sounds, *run(systems, sounds, given.rounds), rate)


def speak(texts: Sequence[str], folder: Path, voice: str, rate: int) -> None:
    """Write a folder of sounds, of texts that espeak-ng speaks."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "spoken.wav"
        for index, text in enumerate(filter(None, map(str.strip, texts))):
            subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", path, text], check=True)
            found, samples = read_wav(path)
            write_wav(folder / f"{index:04}.wav", resampled(samples, found, rate), rate)
            rows.append(f"{index:04}.wav\t{text}\n")
    (folder / TABLE).write_text("".join(rows), encoding="utf-8")


def write_wav(path: Path, samples: Samples, rate: int) -> None:
    """Write samples from -1 to 1 as a sound of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes())


def resampled(samples: Samples, rate: int, wanted: int) -> Samples:
    """The samples at another rate, by their spectrum."""
    size = len(samples) * wanted // rate
    spectrum = np.fft.rfft(samples)[: size // 2 + 1]
    return (np.fft.irfft(spectrum, size) * (size / len(samples))).astype(np.float32)


def read_sounds(folder: Path, rate: int) -> list[Sound]:
    """The sounds of a folder with their texts."""
    sounds: list[Sound] = []
    for line in (folder / TABLE).read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition("\t")
        found, samples = read_wav(folder / name)
        assert found == rate, f"{name} has {found} samples a second; the model takes {rate}"
        sounds.append(Sound(samples, text))
    return sounds


def run(
    systems: dict[str, System], sounds: Sequence[Sound], rounds: int
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """The seconds and the texts of each system, in turns; each first transcribes one sound that is not timed."""
    for system in systems.values():
        system(sounds[0].samples)
    seconds, texts = {name: list[float]() for name in systems}, dict[str, list[str]]()
    for _ in range(rounds):
        for name, system in systems.items():
            start = time.perf_counter()
            texts[name] = [system(sound.samples).strip() for sound in sounds]
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}, texts


def report(sounds: Sequence[Sound], seconds: dict[str, float], texts: dict[str, list[str]], rate: int) -> None:
    """Print a row for each system, then the texts that differ."""
    length = sum(len(sound.samples) for sound in sounds) / rate
    count = sum(len(words(sound.text)) for sound in sounds)
    print(f"{len(sounds)} sounds, {length:.0f} s")
    print(f"{'':12} {'seconds':>8} {'of sound/s':>10} {'WER':>6} {'errors':>7} {'same':>5}")
    for name, found in texts.items():
        pairs = [(words(text), words(sound.text)) for text, sound in zip(found, sounds, strict=True)]
        errors = sum(edit_distance(*pair) for pair in pairs)
        same = sum(one == other for one, other in zip(found, texts["xformc"], strict=True))
        times = f"{seconds[name]:8.2f} {length / seconds[name]:10.1f}"
        print(f"{name:12} {times} {errors / count:6.3f} {errors:7} {same:5}")
    print(f"of {count} words; same: number of texts that equal xformc's")
    for index, sound in enumerate(sounds):
        if len({found[index] for found in texts.values()}) > 1:
            print(f"{'spoken':12} {sound.text}")
            for name, found in texts.items():
                print(f"{name:12} {found[index]}")


def words(text: str) -> list[str]:
    """The words of a text, in lower case without punctuation."""
    return re.findall(r"[\w']+", text.lower())


def ours(engine: Engine, given: argparse.Namespace, samples: Samples) -> str:
    (name,) = (name for name, item in engine.manifest.given.items() if item.rate is not None)
    rows = cut(samples, HOP)
    options: Any = {"language": given.language} if engine.manifest.speech and engine.manifest.speech.languages else {}
    arrays = {name: rows[None], f"{name}_lengths": np.array([len(rows)])}
    [[best, *_]] = engine.transcribe(arrays, beam_size=given.beam_size, **options)
    return best.text


def begins(engine: Engine, language: str) -> list[int]:
    """The tokens that a text begins with."""
    manifest = engine.manifest
    assert manifest.written is not None and manifest.speech is not None
    languages = manifest.speech.languages
    prefix = manifest.speech.prefix(language, TRANSCRIBE) if languages else manifest.prefix
    return [*manifest.inputs[manifest.written].special.begun, *prefix]


def extractor(engine: Engine, mels: int) -> Callable[[Samples], NDArray[np.float32]]:
    """From samples to the features of transformers, [1, mels, frames]."""
    manifest = engine.manifest
    (rate,) = (item.rate for item in manifest.given.values() if item.rate is not None)
    assert manifest.speech is not None and rate is not None
    extract = features(mels, int(manifest.speech.seconds * rate), rate, HOP, WINDOW)

    def found(samples: Samples) -> NDArray[np.float32]:
        array = extract([samples], sampling_rate=rate, return_tensors="np").input_features
        return np.ascontiguousarray(array, np.float32)

    return found


def ctranslate2_whisper(engine: Engine, given: argparse.Namespace) -> System:
    import ctranslate2  # pyright: ignore[reportMissingImports]  # of the extra bench
    import tokenizers

    precision = engine.manifest.precision
    model: Any = ctranslate2.models.Whisper(str(given.model), compute_type=precision, intra_threads=given.threads)
    speller: Any = tokenizers.Tokenizer.from_file(str(given.model / "tokenizer.json"))
    start, extract = begins(engine, given.language), extractor(engine, model.n_mels)

    def found(samples: Samples) -> str:
        array = ctranslate2.StorageView.from_array(extract(samples))
        [result] = model.generate(array, [start], beam_size=given.beam_size)
        return speller.decode(result.sequences_ids[0])

    return found


def transformers_whisper(engine: Engine, given: argparse.Namespace) -> System:
    import tokenizers
    import torch
    from transformers import WhisperForConditionalGeneration

    torch.set_num_threads(given.threads)
    model: Any = WhisperForConditionalGeneration.from_pretrained(given.transformers, attn_implementation="sdpa").eval()
    speller: Any = tokenizers.Tokenizer.from_file(str(given.model / "tokenizer.json"))
    extract, settings, defaults = extractor(engine, model.config.num_mel_bins), model.generation_config, engine.manifest
    settings.suppress_tokens = [*(defaults.search.suppress_tokens or ())]
    settings.begin_suppress_tokens = [*defaults.suppress_first]
    start = torch.tensor([begins(engine, given.language)])
    options: Any = {
        "num_beams": given.beam_size,
        "early_stopping": True,
        "max_length": model.config.max_target_positions,
    }

    def found(samples: Samples) -> str:
        with torch.inference_mode():
            array = torch.from_numpy(extract(samples))
            [tokens] = model.generate(array, decoder_input_ids=start, return_timestamps=False, **options)
        return speller.decode(tokens.tolist())

    return found


if __name__ == "__main__":
    main()
