"""The table of the zoo, as rows.yaml has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.zoo.tasks import TASKS

FILE = Path(__file__).parent / "rows.yaml"
SECTIONS = ("sizes", "choices", "train", "decode")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One architecture on one task.

    `spec` is the content of the spec to train, which extends a shipped one. The engine's `score` must be at least
    `needed`, or where `lower` is better at most that; training stops after `minutes`.
    """

    name: str
    task: str
    spec: Mapping[str, Any]
    score: str
    needed: float
    minutes: float
    lower: bool = False
    quick: bool = False

    def reached(self, score: float) -> bool:
        """Whether this is enough."""
        return score <= self.needed if self.lower else score >= self.needed


def read_rows(path: Path = FILE) -> list[Row]:
    """Every row, in the order of the file."""
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_row(name, row, table) for name, row in table["rows"].items()]


def _row(name: str, row: Settings, table: Settings) -> Row:
    task = table["tasks"][row["task"]]
    assert row["task"] in TASKS, row["task"]
    merged = merge(merge({"train": table["recipe"]}, task), row)
    spec = {"name": name, "extends": row.get("spec", name), **{key: merged[key] for key in SECTIONS if key in merged}}
    measured = {key: merged[key] for key in ("score", "needed", "minutes", "lower", "quick") if key in merged}
    return Row(name=name, task=row["task"], spec=spec, **measured)


def merge(base: Settings, over: Settings) -> Settings:
    """`over` on top of `base`, mappings key by key."""
    both = {key: merge(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return {**base, **over, **both}
