"""The section `precision` of a spec: the number format in which an engine stores each weight."""

from collections.abc import Mapping, Sequence

from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.problems import Problem, suggest
from xformc.compiler.spec.tree import Tree
from xformc.format.precision import Precision

Paths = Mapping[str, Sequence[str]]
"""All paths of each weight, by its name."""

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


def fits(pattern: str, path: str) -> bool:
    """Whether a path equals the pattern or starts with it, name by name; `*` matches any one name."""
    wanted, found = pattern.split("/"), path.split("/")
    return len(wanted) <= len(found) and all(name in ("*", other) for name, other in zip(wanted, found, strict=False))


def idle_patterns(tree: Tree, weights: Sequence[str], paths: Paths) -> list[Problem]:
    """Report the file's own patterns that match no weight that can be quantized."""
    section = tree.get("precision")
    entries = {} if section is None else section.entries
    known = [path for weight in weights for path in paths[weight]]
    beginnings = sorted({"/".join(path.split("/")[:count]) for path in known for count in range(1, 9)})
    return [
        Problem(
            entry.key,
            f"'{pattern[:100]}' matches no weight of a linear layer and no embedding table",
            suggest(pattern, beginnings)
            or f"these weights are under {', '.join(sorted({path.split('/')[0] for path in known}))}",
        )
        for pattern, entry in entries.items()
        if pattern != DEFAULT and is_own(entry, tree) and not any(fits(pattern, path) for path in known)
    ]
