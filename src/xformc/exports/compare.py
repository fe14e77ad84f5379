"""Compares the spec of a run with the one that a family's config gives: the same function, or what differs."""

from collections.abc import Mapping, Sequence
from typing import cast

from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.elementwise import Dropout
from xformc.compiler.spec import Spec
from xformc.compiler.spec.problems import Source
from xformc.compiler.spec.tree import Plain, parse_yaml
from xformc.exports.observe import computed, observed

SECTIONS = ("inputs", "sizes", "choices", "defaults", "tie", "results", "task", "model", "blocks")
"""The sections that say what a model computes, the simplest first."""

LISTED = 12


def differences(ours: Spec, theirs: Spec, family: str) -> list[str]:
    """What the two specs compute differently in use, a line for each; none if they are the same function."""
    if _function(ours.graph()) == _function(theirs.graph()):
        return _results(ours, theirs, family)
    one, other = document(ours), document(theirs)
    lines: list[str] = []
    for section in SECTIONS:
        mine, its = (_flat(document.get(section), 1 if section == "blocks" else 2) for document in (one, other))
        keys = [key for key in mine if key in its or section != "blocks"]
        keys += [] if section in ("blocks", "sizes") else its  # a size that is missing here has no use here
        for key in dict.fromkeys(keys):
            name = ".".join(part for part in (section, key) if part)
            values = [_value(spec, name, found.get(key)) for spec, found in ((ours, mine), (theirs, its))]
            if values[0] != values[1]:
                short = [_shown(value) for value in values]
                lines.append(
                    f"{name}: {short[0]} here, {short[1]} in {family}" if short[0] != short[1] else f"{name}: differs"
                )
    return lines or ["the graphs differ"]


def as_lines(lines: Sequence[str]) -> str:
    """The first of these lines, each on a line of its own, and how many more there are."""
    more = len(lines) - LISTED
    return "".join(f"\n  {line}" for line in (*lines[:LISTED], *([f"and {more} more"] if more > 0 else [])))


def _value(spec: Spec, name: str, value: Plain) -> Plain:
    """The value of a section with its number computed; of a default that the spec does not set, the step's own."""
    return observed(spec, tuple(name.split("."))) if name.startswith("defaults.") else computed(spec, value)


def _results(ours: Spec, theirs: Spec, family: str) -> list[str]:
    """What differs in the results of the same graph: their kinds, and whether vectors are normalized."""
    mine, its = ([(one.kind, bool(one.settings.get("normalize"))) for one in spec.results] for spec in (ours, theirs))
    shown = [", ".join(f"{'normalized ' * normal}{kind}" for kind, normal in found) for found in (mine, its)]
    return [] if mine == its else [f"results: {shown[0] or 'none'} here, {shown[1] or 'none'} in {family}"]


def _function(graph: Graph) -> object:
    """What a graph computes in use: its nodes without dropout."""
    same: dict[str, str] = {}

    def names(values: tuple[Value, ...]) -> tuple[str, ...]:
        return tuple(same.get(value.name, value.name) for value in values)

    nodes: list[object] = []
    for node in graph.nodes:
        if isinstance(node.op, Dropout):
            same[node.outputs[0].name] = names(node.inputs)[0]
        else:
            nodes.append((node.op, names(node.inputs), tuple((value.name, value.type) for value in node.outputs)))
    parameters = {(item.name, item.type) for item in graph.parameters}
    return graph.inputs, parameters, nodes, names(graph.outputs)


def document(spec: Spec) -> Mapping[str, Plain]:
    """The resolved spec as plain values."""
    return cast(Mapping[str, Plain], parse_yaml(Source(spec.name, spec.resolved_yaml())).plain())


def _flat(value: Plain, depth: int, prefix: str = "") -> dict[str, Plain]:
    """The values of a section by their keys, joined by dots."""
    if not isinstance(value, dict) or depth == 0:
        return {} if value is None else {prefix: value}
    found: dict[str, Plain] = {}
    for key, inner in value.items():
        found |= _flat(inner, depth - 1, f"{prefix}.{key}" if prefix else key)
    return found


def _shown(value: Plain) -> str:
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= 60 else "another value"
