"""The settings `decode.alignment` and `decode.coverage` of a spec: attentions of a translation to its source."""

from collections.abc import Callable, Sequence
from functools import partial

from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.attention_weights import AttentionWeights, attentions_between, short_names
from xformc.compiler.spec.paths import fits
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.sections import Decode
from xformc.compiler.spec.tree import Tree
from xformc.errors import suggest

TARGET, SOURCE = "target", "source"


def chosen_by(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a value is inside the attention that a setting names, by the value's name; None if it names none."""
    return None if pattern is None else partial(fits, pattern)


def chosen_attentions(tree: Tree, decode: Decode, graph: Graph) -> list[Problem]:
    """Check that each of the settings names one attention of the target to the source, and that there is one to cover
    with."""
    given = {"alignment": decode.alignment, "coverage": decode.coverage}
    if not decode.covers and not any(given.values()):
        return []
    _, found = attentions_between(graph, TARGET, SOURCE)
    problems = [problem for key, pattern in given.items() for problem in _one(tree, key, pattern, found)]
    section = tree.get("decode", "coverage_penalty")
    if decode.covers and not found and section is not None and decode.coverage is None:
        message = f"the model has no attention of '{TARGET}' to '{SOURCE}', so there is no coverage"
        problems.append(Problem(section.span, message, "remove it"))
    return problems


_USES = {"alignment": "aligns", "coverage": "covers"}


def _one(tree: Tree, key: str, pattern: str | None, found: Sequence[AttentionWeights]) -> list[Problem]:
    section = tree.get("decode", key)
    if pattern is None or section is None:
        return []
    names = short_names([one.value.name for one in found])
    fitting = [name for one, name in zip(found, names, strict=True) if fits(pattern, one.value.name)]
    if len(fitting) == 1:
        return []
    if not found:
        message = f"the model has no attention of '{TARGET}' to '{SOURCE}', so '{pattern}' {_USES[key]} nothing"
        return [Problem(section.span, message, "remove it")]
    if fitting:
        message = f"'{pattern}' is more than one attention of '{TARGET}' to '{SOURCE}'"
        return [Problem(section.span, message, f"choose one of {', '.join(fitting)}")]
    hint = suggest(pattern, names) or f"choose one of {', '.join(names)}"
    return [Problem(section.span, f"'{pattern}' is no attention of '{TARGET}' to '{SOURCE}'", hint)]
