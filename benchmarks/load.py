"""Time to the first translation of a fresh process, and its memory: engines and CTranslate2 models.

    python benchmarks/load.py ENGINE... [CTRANSLATE2_MODEL...] [--rounds 5] [--threads 2] [--batch 32] [--json]

Each folder is measured in its own processes, in turns. Times are the minimum over all rounds, counted from the start of
the process: until the packages are imported, until the model is loaded, and until one sentence of 25 random tokens has
been translated with beam 4 into at most 30 tokens. Memory is measured after that sentence, and again after a batch of
such sentences. `peak` is the largest resident set so far, interpreter and mapped weights included. `own` is the private
memory, which cannot be read again from a file.
"""

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCE_TOKENS, LENGTH, BEAM = 25, 30, 4
END = 3
Translate = Callable[[list[list[int]]], object]
"""A function that translates sentences of token ids."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each folder")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.began is not None:
        print(json.dumps(measure(arguments.folders[0], arguments.threads, arguments.batch, arguments.began)))
        return
    found: dict[Path, list[dict[str, float]]] = {folder: [] for folder in arguments.folders}
    for _ in range(arguments.rounds):
        for folder, results in found.items():
            results.append(run(folder, arguments.threads, arguments.batch))
    if not arguments.json:
        print(f"{'':24} {'disk':>6} {'import':>7} {'load':>7} {'first':>7}  {'first, MB':>12}  {'batch, MB':>12}")
        print(f"{'':24} {'MB':>6} {'s':>7} {'s':>7} {'s':>7}  {'peak':>6} {'own':>5}  {'peak':>6} {'own':>5}")
    for folder, results in found.items():
        least = {name: min(result[name] for result in results) for name in results[0]}
        disk = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        if arguments.json:
            print(json.dumps({"folder": str(folder), "disk_mb": disk, **least}))
            continue
        seconds = " ".join(f"{least[name]:7.3f}" for name in ("import_s", "load_s", "first_s"))
        memory = "  ".join(
            f"{least[f'{name}_mb']:6,.0f} {least[f'{name}_own_mb']:5,.0f}" for name in ("first", "batch")
        )
        print(f"{folder.name:24} {disk:6,.0f} {seconds}  {memory}")


def run(folder: Path, threads: int, batch: int) -> dict[str, float]:
    """Measure one folder in a new process."""
    options = ["--threads", str(threads), "--batch", str(batch), "--began", str(time.monotonic())]
    done = subprocess.run([sys.executable, __file__, str(folder), *options], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(folder: Path, threads: int, batch: int, began: float) -> dict[str, float]:
    """Load a model and translate in this process, which started at the monotonic time `began`."""
    importlib.import_module("xformc.runtime" if is_engine(folder) else "ctranslate2")
    imported = time.monotonic()
    translate, vocabulary = open_model(folder, threads)
    loaded = time.monotonic()
    sentences = random_sentences(max(1, batch), vocabulary)
    translate(sentences[:1])
    translated, first = time.monotonic(), memory()
    translate(sentences)
    last = memory()
    return {
        "import_s": imported - began,
        "load_s": loaded - began,
        "first_s": translated - began,
        "first_mb": first["VmHWM"],
        "first_own_mb": first["RssAnon"],
        "batch_mb": last["VmHWM"],
        "batch_own_mb": last["RssAnon"],
    }


def random_sentences(count: int, vocabulary: int) -> list[list[int]]:
    """The ids of so many sentences, the same each time."""
    source = random.Random(0)
    return [[*(source.randrange(4, vocabulary) for _ in range(SOURCE_TOKENS - 1)), END] for _ in range(count)]


def is_engine(folder: Path) -> bool:
    """Return whether the folder has an engine; otherwise it has a CTranslate2 model."""
    return (folder / "engine.json").is_file()


def open_model(folder: Path, threads: int) -> tuple[Translate, int]:
    """Load an engine or a CTranslate2 model; return it as a function, and the size of its vocabulary."""
    return (xformc_engine if is_engine(folder) else ctranslate2_model)(folder, threads)


def xformc_engine(folder: Path, threads: int) -> tuple[Translate, int]:
    from xformc.runtime import load

    engine = load(folder, threads=threads)

    def translate(sentences: list[list[int]]) -> object:
        return engine.search(sentences, beam_size=BEAM, max_length_factor=0, max_length_offset=LENGTH)

    return translate, engine.manifest.inputs["source"].pieces


def ctranslate2_model(folder: Path, threads: int) -> tuple[Translate, int]:
    import ctranslate2  # pyright: ignore[reportMissingImports]  # of the extra bench

    model = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=threads)
    [path] = [*folder.glob("shared_vocabulary.json"), *folder.glob("source_vocabulary.json")]
    tokens = json.loads(path.read_text())

    def translate(sentences: list[list[int]]) -> object:
        texts = [[tokens[token] for token in sentence] for sentence in sentences]
        return model.translate_batch(
            texts, beam_size=BEAM, length_penalty=0.6, max_decoding_length=LENGTH, max_batch_size=len(texts)
        )

    return translate, len(tokens)


def memory() -> dict[str, float]:
    """Return the memory fields of this process's status in Linux, in MB."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return {
        name: int(value.split()[0]) * 1024 / 1e6
        for name, value in (line.split(":\t", 1) for line in lines if "kB" in line)
    }


if __name__ == "__main__":
    main()
