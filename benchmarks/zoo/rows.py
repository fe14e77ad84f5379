"""Reads the table of the zoo from rows.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.zoo.tasks import TASKS

FILE = Path(__file__).parent / "rows.yaml"
SECTIONS = ("sizes", "choices", "tie", "train", "decode")
LOWER_IS_BETTER = frozenset({"perplexity", "wer", "cer", "mae", "rmse"})
"""The last words of the names of errors."""
GAIN = "gain"
"""By how much a row that starts from another one exceeds the same row from random weights, in its first score."""
Settings = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One architecture on one task.

    spec: the content of the spec to train, which extends a shipped one. needed: the minimum scores of the engine; for
    perplexity and errors, the maximum. minutes: the limit of training time.
    """

    name: str
    task: str
    spec: Mapping[str, Any]
    needed: Mapping[str, float]
    minutes: float
    quick: bool = False
    start: str | None = None

    @property
    def measure(self) -> str:
        """The first of the needed scores."""
        return next(iter(self.needed))

    def reached(self, scores: Mapping[str, float]) -> bool:
        """Whether these scores are good enough."""
        return all(is_enough(name, scores[name], bound) for name, bound in self.needed.items())


def is_enough(name: str, score: float, bound: float) -> bool:
    """Whether the score of this name satisfies its bound."""
    return score <= bound if name.rsplit("_", maxsplit=1)[-1] in LOWER_IS_BETTER else score >= bound


def read_rows(path: Path = FILE) -> list[Row]:
    """Return every row, in the order of the file."""
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_row(name, row, table) for name, row in table["rows"].items()]


def _row(name: str, row: Settings, table: Settings) -> Row:
    task = table["tasks"][row["task"]]
    assert row["task"] in TASKS, row["task"]
    merged = merge(merge({"train": table["recipe"]}, task), row)
    spec = {
        "name": name.replace("/", "_"),
        "extends": row.get("spec", name),
        **{key: merged[key] for key in SECTIONS if key in merged},
    }
    return Row(
        name, row["task"], spec, merged["needed"], merged["minutes"], merged.get("quick", False), row.get("start")
    )


def merge(base: Settings, over: Settings) -> Settings:
    """Merge `over` into `base`; mappings are merged key by key."""
    both = {key: merge(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return {**base, **over, **both}
