"""The settings `train.freeze` and `train.low_rank` of a spec: parameters that training does not change."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.spec.paths import Paths, fits, hint
from xformc.compiler.spec.problems import Problem, raise_problems
from xformc.compiler.spec.sections import LowRank
from xformc.compiler.spec.tree import Tree


def frozen(graph: Graph, patterns: Sequence[str], tree: Tree, paths: Paths) -> Graph:
    """The graph in which parameters that match a pattern are not trained. Raises: SpecError for an idle pattern."""
    section = tree.get("train", "freeze")
    if not patterns or section is None:
        return graph
    trained = {parameter.name: paths[parameter.name] for parameter in graph.parameters if parameter.trained}
    _require_used(section, trained)
    kept = _chosen(patterns, trained)
    if kept == trained.keys():
        raise_problems([Problem(section.span, "freezes every parameter, so there is nothing to train")])
    return _without(graph, kept)


def adapted(graph: Graph, low_rank: LowRank | None, tree: Tree, paths: Paths) -> Graph:
    """The graph in which only what `low_rank` names is trained. Raises: SpecError for an idle pattern."""
    section = tree.get("train", "low_rank")
    if low_rank is None or section is None:
        return graph
    trained = {parameter.name: paths[parameter.name] for parameter in graph.parameters if parameter.trained}
    linear = {name: trained[name] for name in trained.keys() & linear_weights(graph)}
    for key, among in (("parameters", linear), ("whole", trained)):
        if (patterns := section.get(key)) is not None:
            _require_used(patterns, among, "weight of a linear map" if among is linear else "trained parameter")
    return _without(graph, trained.keys() - _chosen(low_rank.parameters, linear) - _chosen(low_rank.whole, trained))


def low_rank_weights(graph: Graph, low_rank: LowRank, paths: Paths) -> frozenset[str]:
    """The weights that change by a product of low rank."""
    linear = {name: paths[name] for name in linear_weights(graph)}
    return frozenset(_chosen(low_rank.parameters, linear) - _chosen(low_rank.whole, linear))


def _require_used(section: Tree, among: Paths, kind: str = "trained parameter") -> None:
    every = [path for group in among.values() for path in group]
    raise_problems(
        Problem(item.span, f"'{item.word[:100]}' matches no {kind}", hint(item.word, every, "parameters"))
        for item in section.items
        if not any(fits(item.word, path) for path in every)
    )


def _chosen(patterns: Sequence[str], among: Paths) -> set[str]:
    return {name for name, group in among.items() if any(fits(pattern, path) for pattern in patterns for path in group)}


def _without(graph: Graph, kept: Collection[str]) -> Graph:
    parameters = tuple(replace(one, trained=one.trained and one.name not in kept) for one in graph.parameters)
    return replace(graph, parameters=parameters)
