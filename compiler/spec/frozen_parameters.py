"""The setting `train.freeze` of a spec: parameters that training does not change."""

from collections.abc import Sequence
from dataclasses import replace

from xformc.compiler.graph.graph import Graph
from xformc.compiler.spec.paths import Paths, fits, hint
from xformc.compiler.spec.problems import Problem, raise_problems
from xformc.compiler.spec.tree import Tree


def frozen(graph: Graph, patterns: Sequence[str], tree: Tree, paths: Paths) -> Graph:
    """The graph in which parameters that match a pattern are not trained. Raises: SpecError for an idle pattern."""
    section = tree.get("train", "freeze")
    if not patterns or section is None:
        return graph
    trained = {parameter.name: paths[parameter.name] for parameter in graph.parameters if parameter.trained}
    every = [path for group in trained.values() for path in group]
    idle = [item for item in section.items if not any(fits(item.word, path) for path in every)]
    raise_problems(
        Problem(item.span, f"'{item.word[:100]}' matches no trained parameter", hint(item.word, every, "parameters"))
        for item in idle
    )
    kept = {
        name for name, group in trained.items() if any(fits(pattern, path) for pattern in patterns for path in group)
    }
    if kept == trained.keys():
        raise_problems([Problem(section.span, "freezes every parameter, so there is nothing to train")])
    return replace(
        graph, parameters=tuple(replace(p, trained=p.trained and p.name not in kept) for p in graph.parameters)
    )
