"""The section `train.rates` of a spec: parameters that are trained at a part of the schedule's rate."""

from collections.abc import Collection, Mapping

from xformc.compiler.graph.graph import Graph
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.paths import Paths, fits, hint
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.tree import Tree


def trained_in(graph: Graph) -> tuple[str, ...]:
    """The names of the parameters that training changes."""
    return tuple(parameter.name for parameter in graph.parameters if parameter.trained)


def rates_of(patterns: Mapping[str, float], trained: Collection[str], paths: Paths) -> dict[str, float]:
    """The part of each trained parameter that a pattern matches, by its name; the last matching pattern counts."""
    return {
        name: part
        for pattern, part in patterns.items()
        for name in trained
        if any(fits(pattern, path) for path in paths[name])
    }


def idle_rates(tree: Tree, trained: Collection[str], paths: Paths) -> list[Problem]:
    """Report the file's own patterns that match no trained parameter."""
    section = tree.get("train", "rates")
    entries = {} if section is None else section.entries
    known = [path for name in trained for path in paths[name]]
    return [
        Problem(entry.key, f"'{pattern[:100]}' matches no trained parameter", hint(pattern, known, "parameters"))
        for pattern, entry in entries.items()
        if is_own(entry, tree) and not any(fits(pattern, path) for path in known)
    ]
