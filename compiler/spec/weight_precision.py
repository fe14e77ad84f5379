"""In which numbers an engine stores each weight: the section `precision` of a spec."""

from collections.abc import Mapping, Sequence

from xformc.compiler.spec.consistency import is_own
from xformc.compiler.spec.model import Ties
from xformc.compiler.spec.problems import Problem, suggest
from xformc.compiler.spec.tree import Tree
from xformc.format.precision import Precision

DEFAULT = "default"
"""The key of what no pattern fits."""


def assign(
    patterns: Mapping[str, Precision], default: Precision, weights: Sequence[str], ties: Ties
) -> dict[str, Precision]:
    """The precision of each of these weights: that of the last pattern that fits one of its paths, or the default."""
    chosen: dict[str, Precision] = {}
    for weight in weights:
        paths = _paths(weight, ties)
        chosen[weight] = default
        for pattern, precision in patterns.items():
            if pattern != DEFAULT and any(fits(pattern, path) for path in paths):
                chosen[weight] = precision
    return chosen


def fits(pattern: str, path: str) -> bool:
    """Whether a path is the pattern or begins with it, name by name; `*` is any one name."""
    wanted, found = pattern.split("/"), path.split("/")
    return len(wanted) <= len(found) and all(name in ("*", other) for name, other in zip(wanted, found, strict=False))


def idle_patterns(tree: Tree, weights: Sequence[str], ties: Ties) -> list[Problem]:
    """The file's own patterns that fit no weight that can be rounded."""
    section = tree.get("precision")
    entries = {} if section is None else section.entries
    paths = [path for weight in weights for path in _paths(weight, ties)]
    beginnings = sorted({"/".join(path.split("/")[:count]) for path in paths for count in range(1, 9)})
    return [
        Problem(
            entry.key,
            f"no weight of a linear map and no table of tokens is under '{pattern[:100]}'",
            suggest(pattern, beginnings)
            or f"there are some under {', '.join(sorted({p.split('/')[0] for p in paths}))}",
        )
        for pattern, entry in entries.items()
        if pattern != DEFAULT and is_own(entry, tree) and not any(fits(pattern, path) for path in paths)
    ]


def _paths(weight: str, ties: Ties) -> list[str]:
    """All paths that a weight has: its name, and those that are tied to it."""
    return [weight, *(path for group in ties if group[0][0] == weight for path, _ in group[1:])]
