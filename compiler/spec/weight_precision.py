"""The section `precision` of a spec: the number format in which an engine stores each weight, and its caches."""

from collections.abc import Mapping, Sequence

from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.paths import Paths, fits, hint
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.tree import Tree
from xformc.format.precision import Precision

DEFAULT = "default"
"""The key for weights that no pattern matches."""
CACHES = "caches"
"""The key for keys and values that a decoder keeps."""
RESERVED = (DEFAULT, CACHES)


def assign(
    patterns: Mapping[str, Precision], default: Precision, weights: Sequence[str], paths: Paths
) -> dict[str, Precision]:
    """The precision of each weight: that of the last pattern that matches one of its paths, or the default."""
    chosen: dict[str, Precision] = {}
    for weight in weights:
        chosen[weight] = default
        for pattern, precision in patterns.items():
            if pattern not in RESERVED and any(fits(pattern, path) for path in paths[weight]):
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
        if pattern not in RESERVED and is_own(entry, tree) and not any(fits(pattern, path) for path in known)
    ]


def caches_fit(tree: Tree, task: str, written: str | None) -> list[Problem]:
    """Report caches in a number format that they do not have, or of a model that is not decoded."""
    section = tree.get("precision")
    entry = None if section is None else section.entries.get(CACHES)
    if entry is None:
        return []
    if entry.tree.word != "int8":
        return [Problem(entry.tree.span, f"caches are int8 or left out, found {entry.tree.described()}", _OF_WEIGHTS)]
    if written is None:
        return [Problem(entry.key, f"a model of {task} is not decoded, so it keeps no caches", "remove it")]
    return []


_OF_WEIGHTS = (
    "without it they are float16 where products of integers or bfloat16 make them, else float32; a weight called "
    "caches is caches/*"
)
