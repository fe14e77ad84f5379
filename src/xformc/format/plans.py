"""The record of TensorRT plans in engine.json."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.format.document import Document

INSTALL = {"tensorrt": "pip install 'xformc[tensorrt]'", "tensorrt_rtx": "pip install 'xformc[tensorrt-rtx]'"}
"""The plan builders, by module name, and the command that installs each."""

Range = tuple[int, int, int]
"""The minimum, optimum and maximum size of an axis."""

Profile = Mapping[str, Range]
"""The range of each axis of a model's inputs, by name."""

KEYS = "_keys"
"""The suffix of the second axis of edges, after the name of the input whose positions they join."""


@dataclass(frozen=True)
class Plan:
    """One plan: its builder, its GPU and its range of sizes.

    builder: tensorrt or tensorrt_rtx. version: the builder's version.
    device: the name of the GPU the plan was built on. capability: the compute capability it runs on, such as 8.9.
    Both are None for a plan that runs on every GPU its builder supports.
    """

    builder: str
    version: str
    device: str | None
    capability: str | None
    precision: str
    profile: Profile


def read_plan(document: Document) -> Plan:
    """Return the record of one plan in engine.json. Raises: UserError for a missing or invalid value."""
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
