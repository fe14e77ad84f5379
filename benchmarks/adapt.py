"""Adaptation: a model of general text that is trained further on another domain, and what it keeps of the first one.

    python -m benchmarks.adapt --general DIR --domain DIR [--languages en-de] [--steps 3000 600]
        [--set KEY=VALUE] --folder DIR

Both folders have train.* and valid.*. The general model is specs/multi30k.yaml. Then all its weights are
trained further on the domain alone (`adapted`), or with as many pairs of general text (`mixed`), or updates of
low rank are (`low_rank`). `scratch` is trained on the domain alone for as long, from the beginning, with the
same vocabulary. Each step is a command of xformc; one that is done is not repeated. Scores are BLEU of both
validation sets, from text to text; nothing is selected by them.
"""

import argparse
import json
from pathlib import Path

from benchmarks.distill import PEAK, SPEC, find, once, recipe, run, settings, train
from xformc.format.names import TOKENIZER
from xformc.runtime.text.lines import read_text_file

GENTLE = 0.001
"""The highest rate of what is trained further."""

LOW_RANK = "train.low_rank={rank: 16, scale: 2.0, parameters: ['**/query', '**/value', '**/feed_forward/*']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", type=Path, required=True, metavar="DIR")
    parser.add_argument("--domain", type=Path, required=True, metavar="DIR")
    parser.add_argument("--languages", default="en-de", help="source-target")
    parser.add_argument("--steps", type=int, nargs=2, default=[3000, 600], help="of the general model, of each other")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all trainings")
    parser.add_argument("--folder", type=Path, required=True, help="where runs and engines are written")
    given = parser.parse_args()
    given.general = in_files(given.general, given.folder / "general-text", given.languages)
    given.domain = in_files(given.domain, given.folder / "domain-text", given.languages)
    names, languages = ["general", "scratch", "adapted", "mixed", "low_rank"], ["--languages", given.languages]
    runs = {name: given.folder / name for name in names}
    domain = ["--data", str(given.domain), *languages]
    long, short = given.steps
    train(runs["general"], [*spec(long, given.set), "--data", str(given.general), *languages])
    vocabulary = ["--tokenizer", str(runs["general"] / TOKENIZER)]
    train(runs["scratch"], [*spec(short, given.set), *domain, *vocabulary])
    further = [*spec(short, given.set, GENTLE), "--start", str(runs["general"])]
    train(runs["adapted"], [*further, *domain])
    train(runs["low_rank"], [*further, *domain, *settings([LOW_RANK])])
    corpora = ["--data", str(given.domain), "--data", str(given.general), *languages, "--weight", "1"]
    pairs = [
        len(read_text_file(texts(folder, "train", given.languages)[0])) for folder in (given.domain, given.general)
    ]
    once(given.folder / "both", ["data", str(SPEC), *corpora, "--weight", f"{pairs[0] / pairs[1]:.3f}", *vocabulary])
    train(runs["mixed"], [*further, "--data", str(given.folder / "both")])
    print(f"{'model':12} {'general':>8} {'domain':>8}")
    for name in names:
        engine = given.folder / f"{name}-engine"
        scores = [bleu(engine, texts(folder, "val", given.languages)) for folder in (given.general, given.domain)]
        print(f"{name:12} {scores[0]:8.2f} {scores[1]:8.2f}")


def spec(steps: int, changes: list[str], peak: float = PEAK) -> list[str]:
    return [str(SPEC), *settings([*recipe(steps, peak), *changes])]


def in_files(folder: Path, out: Path, languages: str) -> Path:
    """The folder; if its pairs are lines with tabs, a copy with a file for each language, as --languages needs."""
    if not any(folder.glob("train*.tsv*")):
        return folder
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        (path,) = folder.glob(f"{split}*.tsv*")
        columns = zip(*(line.split("\t") for line in read_text_file(path)), strict=True)
        for language, lines in zip(languages.split("-"), columns, strict=True):
            (out / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return out


def texts(folder: Path, split: str, languages: str) -> list[Path]:
    """The files of a split, one for each language."""
    return [find(folder, split, language) for language in languages.split("-")]


def bleu(engine: Path, files: list[Path]) -> float:
    return json.loads(run(["evaluate", str(engine), *map(str, files), "--json"]))["bleu"]["score"]


if __name__ == "__main__":
    main()
