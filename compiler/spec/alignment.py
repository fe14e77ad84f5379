"""The setting `decode.alignment` of a spec: the attention that aligns a translation with its source."""

from collections.abc import Callable
from functools import partial

from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.attention_weights import attentions_between, short_names
from xformc.compiler.spec.paths import fits
from xformc.compiler.spec.problems import Problem, suggest
from xformc.compiler.spec.tree import Tree


def chosen_by(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a value is inside the attention that the setting names, by the value's name; None if it names none."""
    return None if pattern is None else partial(fits, pattern)


def one_alignment(tree: Tree, pattern: str | None, graph: Graph, target: str, source: str) -> list[Problem]:
    """Check that the setting names one attention of the target to the source."""
    section = tree.get("decode", "alignment")
    if pattern is None or section is None:
        return []
    _, found = attentions_between(graph, target, source)
    names = short_names([one.value.name for one in found])
    fitting = [name for one, name in zip(found, names, strict=True) if fits(pattern, one.value.name)]
    if len(fitting) == 1:
        return []
    if not found:
        message = f"the model has no attention of '{target}' to '{source}', so '{pattern}' aligns nothing"
        return [Problem(section.span, message, "remove it")]
    if fitting:
        message = f"'{pattern}' is more than one attention of '{target}' to '{source}'"
        return [Problem(section.span, message, f"choose one of {', '.join(fitting)}")]
    hint = suggest(pattern, names) or f"choose one of {', '.join(names)}"
    return [Problem(section.span, f"'{pattern}' is no attention of '{target}' to '{source}'", hint)]
