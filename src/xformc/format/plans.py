"""What engine.json says of TensorRT's plans."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.format.document import Document

INSTALL = {"tensorrt": "pip install 'xformc[tensorrt]'", "tensorrt_rtx": "pip install 'xformc[tensorrt-rtx]'"}
"""The builders, by the names of their modules, and how to install each."""

Range = tuple[int, int, int]
"""The least, the most frequent and the largest size of an axis."""

Profile = Mapping[str, Range]
"""Of each axis of a model's inputs, by its name."""


@dataclass(frozen=True)
class Plan:
    """One plan: what built it, for what, and for which sizes.

    builder: tensorrt or tensorrt_rtx. version: its own. device: the name of the GPU that it was built on, and
    capability, such as 8.9, what it runs on; both None for a plan that runs on every GPU that its builder knows.
    """

    builder: str
    version: str
    device: str | None
    capability: str | None
    precision: str
    profile: Profile


def read_plan(document: Document) -> Plan:
    """The record of one plan in engine.json. Raises: UserError where it says what cannot be."""
    profile = document.section("profile")
    ranges: dict[str, Range] = {}
    for axis in profile.fields:
        least, often, most = profile.integers(axis, 3)
        ranges[axis] = (least, often, most)
    return Plan(
        document.text("builder", tuple(INSTALL)),
        document.text("version"),
        document.optional_text("device"),
        document.optional_text("capability"),
        document.text("precision"),
        ranges,
    )
