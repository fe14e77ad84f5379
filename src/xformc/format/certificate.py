"""The certificate of an engine: each comparison, the difference found, and the bound on it."""

import json
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Literal

from xformc.format.document import Document

CERTIFICATE_BYTES = 1 << 24
"""The largest certificate.json that is read."""


@dataclass(frozen=True)
class Stage:
    """One comparison: `value` is the largest difference found, `bound` the largest allowed.

    `seen`: how many of the model's weights change what is compared, and how many there are. `fault`: why it failed, if
    not by a fault of xformc.
    """

    name: str
    what: str
    value: float
    bound: float
    detail: str = ""
    seen: tuple[int, int] | None = None
    fault: Literal["", "weights", "spec"] = ""

    @property
    def passed(self) -> bool:
        """Whether the difference is within its bound; NaN is not."""
        return self.value <= self.bound

    def line(self) -> str:
        """Return the stage as one line of text."""
        mark = "ok  " if self.passed else "FAIL"
        detail = f"  {self.detail}" if self.detail else ""
        if self.seen is not None and self.seen[0] < self.seen[1]:
            detail += f"  (sees {self.seen[0]} of {self.seen[1]} weights)"
        return f"{mark} {self.name:8} {self.value:8.1e} <= {self.bound:.0e}  {self.what}{detail}"


@dataclass(frozen=True)
class Measured:
    """A number that is reported without a bound."""

    name: str
    what: str
    value: float

    def line(self) -> str:
        """Return the number as one line of text, aligned with the lines of the stages."""
        return f"     {self.name:8} {self.value:8.4f}           {self.what}"


@dataclass(frozen=True)
class Certificate:
    """The stages, the date, versions and machine they were run with, and further measured numbers."""

    stages: tuple[Stage, ...]
    date: str
    versions: dict[str, str] = field(default_factory=dict[str, str])
    machine: str = ""
    measured: tuple[Measured, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every stage is within its bound."""
        return all(stage.passed for stage in self.stages)

    def with_stage(self, stage: Stage) -> "Certificate":
        """Return the certificate with one more stage."""
        return replace(self, stages=(*self.stages, stage))

    def lines(self) -> list[str]:
        """Return the certificate as text: a line for each stage and each number."""
        return [line.line() for line in (*self.stages, *self.measured)]

    def fields(self) -> dict[str, object]:
        """Return the certificate as values of JSON."""
        return {**asdict(self), "passed": self.passed, "stages": [_written(stage) for stage in self.stages]}

    def write(self, path: Path) -> None:
        """Write the certificate as JSON."""
        path.write_text(json.dumps(self.fields(), indent=2) + "\n", encoding="utf-8")


def read_certificate(document: Document) -> Certificate:
    """Return the certificate in certificate.json. Raises: UserError for a document that is not a certificate."""
    measured = document.sections("measured") if "measured" in document.fields else []
    return Certificate(
        stages=tuple(_read_stage(stage) for stage in document.sections("stages")),
        date=document.text("date"),
        versions={name: document.section("versions").text(name) for name in document.section("versions").fields},
        machine=document.text("machine") if "machine" in document.fields else "",
        measured=tuple(
            Measured(item.text("name"), item.text("what"), item.number("value", 0, inf)) for item in measured
        ),
    )


def _written(stage: Stage) -> dict[str, object]:
    value = stage.value if isfinite(stage.value) else None  # of a stage that failed: JSON has no NaN
    content: dict[str, object] = {"name": stage.name, "what": stage.what, "value": value, "bound": stage.bound}
    content["detail"] = stage.detail
    if stage.seen is not None:
        content["seen"] = {"weights": stage.seen[0], "of": stage.seen[1]}
    return {**content, "passed": stage.passed}


def _read_stage(stage: Document) -> Stage:
    value, bound = stage.number("value", 0, inf), stage.number("bound", 0, inf)
    detail = stage.text("detail") if "detail" in stage.fields else ""
    seen = None
    if "seen" in stage.fields:
        section = stage.section("seen")
        seen = section.integer("weights", 0), section.integer("of", 0)
    return Stage(stage.text("name"), stage.text("what"), value, bound, detail, seen)
