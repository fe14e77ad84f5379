"""The section `precision` of a spec: the number format in which an engine stores each weight."""

from collections.abc import Mapping, Sequence

from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.paths import Paths, fits, hint
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.tree import Tree
from xformc.format.precision import Precision

DEFAULT = "default"
"""The key for weights that no pattern matches."""


def assign(
    patterns: Mapping[str, Precision], default: Precision, weights: Sequence[str], paths: Paths
) -> dict[str, Precision]:
    """The precision of each weight: that of the last pattern that matches one of its paths, or the default."""
    chosen: dict[str, Precision] = {}
    for weight in weights:
        chosen[weight] = default
        for pattern, precision in patterns.items():
            if pattern != DEFAULT and any(fits(pattern, path) for path in paths[weight]):
                chosen[weight] = precision
    return chosen


def idle_patterns(tree: Tree, weights: Sequence[str], paths: Paths) -> list[Problem]:
    """Report the file's own patterns that match no weight that can be quantized."""
    section = tree.get("precision")
    entries = {} if section is None else section.entries
    known = [path for weight in weights for path in paths[weight]]
    return [
        Problem(
            entry.key,
            f"'{pattern[:100]}' matches no weight of a linear layer and no embedding table",
            hint(pattern, known, "these weights"),
        )
        for pattern, entry in entries.items()
        if pattern != DEFAULT and is_own(entry, tree) and not any(fits(pattern, path) for path in known)
    ]
