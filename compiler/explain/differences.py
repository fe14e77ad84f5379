"""What differs between two specs: sizes, choices, inputs, results, settings, parameters, operations and cost."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, cast

from xformc.compiler.explain.cost.spec_cost import report
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph, Node, Op, Parameter
from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input
from xformc.format.tokens import SPECIAL

Pair = tuple[str | None, str | None]
"""How a thing is in the first spec and in the second; None where it is not."""


@dataclass(frozen=True)
class Differences:
    """The differences of two specs by section, each a mapping from names to pairs.

    A parameter's name has `*` for the index of a layer, and its pairs say how many there are and of which axes.
    """

    names: tuple[str, str]
    sections: Mapping[str, Mapping[str, Pair]]


def differences(first: Spec, second: Spec) -> Differences:
    """Compare two specs. Raises: SpecError."""
    both = (first, second)
    sections = {
        "spec": _pairs(*({"task": spec.task} for spec in both)),
        "sizes": _pairs(*({name: f"{value:,}" for name, value in spec.sizes.items()} for spec in both)),
        "choices": _pairs(*({name: str(tree.value) for name, tree in spec.model.choices.items()} for spec in both)),
        "inputs": _pairs(*map(_inputs, both)),
        "results": _pairs(*map(_results, both)),
        "settings": _pairs(*map(_settings, both)),
        "parameters": _pairs(*map(_parameters, both)),
        "initial values": _of_both(_pairs(*map(_initial, both))),
        "operations": _pairs(*map(_operations, both)),
        "cost": _pairs(*map(_cost, both)),
    }
    sections = {name: pairs for name, pairs in sections.items() if pairs}
    if not sections and _written(first) != _written(second):
        sections = {"operations": {"names and order": ("one", "another")}}
    return Differences((first.name, second.name), sections)


def differences_text(found: Differences) -> str:
    """The differences, one on a line; `-` stands for what a spec does not have."""
    if not found.sections:
        return f"{found.names[0]} and {found.names[1]} do not differ"
    lines = [f"{found.names[0]} -> {found.names[1]}"]
    for section, pairs in found.sections.items():
        width = max(map(len, pairs))
        lines.append(section)
        lines += [f"  {name:<{width}}  {one or '-'} -> {other or '-'}" for name, (one, other) in pairs.items()]
    return "\n".join(lines)


def _pairs(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, Pair]:
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _of_both(pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """Without what only one of the specs has."""
    return {name: pair for name, pair in pairs.items() if None not in pair}


def _inputs(spec: Spec) -> dict[str, str]:
    return {
        name: " ".join(filter(None, (item.kind, *map(str, item.axes), item.of and f"of {item.of}", _special(item))))
        for name, item in spec.inputs.items()
    }


def _special(item: Input) -> str:
    """The special tokens of an input of tokens, if they are not the usual ones."""
    own = {field.name: getattr(item.special, field.name) for field in fields(item.special)}
    usual = {field.name: getattr(SPECIAL, field.name) for field in fields(SPECIAL)}
    return " ".join(f"{name}={value}" for name, value in own.items() if value != usual[name])


def _results(spec: Spec) -> dict[str, str]:
    found = {one.name: {"kind": one.kind, **one.settings, **one.loss, "weight": one.weight} for one in spec.results}
    return {f"{name}.{key}": str(value) for name, keys in found.items() for key, value in keys.items()}


def _initial(spec: Spec) -> dict[str, str]:
    return _counted(spec.graph().parameters, lambda one: f"{one.initial.kind} {one.initial.value:g}")


def _operations(spec: Spec) -> dict[str, str]:
    """How often the model has each operation, with those of its numbers and words that are not usual."""
    counts = Counter(_shown(node.op) for node in _nodes(spec.graph()))
    return {name: str(count) for name, count in counts.items()}


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, and of the graphs inside them."""
    for node in graph.nodes:
        yield node
        for value in (getattr(node.op, field.name) for field in fields(node.op)):
            if isinstance(value, Graph):
                yield from _nodes(value)


def _shown(op: Op) -> str:
    def is_usual(field: Field[Any], value: object) -> bool:
        return isinstance(value, Graph) or (field.default is not MISSING and value == field.default)

    given = [
        (field.name, getattr(op, field.name)) for field in fields(op) if not is_usual(field, getattr(op, field.name))
    ]
    return " ".join((op.kind, *(f"{name}={value}" for name, value in given)))


def _written(spec: Spec) -> str:
    """The graph as text, without its name and without places."""
    graph = spec.graph()
    return text.format(replace(graph, name="", nodes=tuple(replace(node, place=None) for node in graph.nodes)))


def _settings(spec: Spec) -> dict[str, str]:
    precision = {f"precision.{name}": word for name, word in spec.precision.items()}
    return {**_flat("train", spec.train.model_dump()), **_flat("decode", spec.decode.model_dump()), **precision}


def _flat(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {name: str(value)}
    section = cast(dict[str, object], value)
    return {key: text for inner, item in section.items() for key, text in _flat(f"{name}.{inner}", item).items()}


def _parameters(spec: Spec) -> dict[str, str]:
    """The axes of each parameter, with the number of layers that have it; sizes only of axes that have another one."""

    def axes(parameter: Parameter) -> str:
        sized = (str(axis) if spec.sizes.get(axis.name) != axis.size else axis.name for axis in parameter.type.axes)
        return f"[{', '.join(sized)}]"

    return {**_counted(spec.graph().parameters, axes), "total": f"{spec.graph().parameter_count():,}"}


def _counted(parameters: Sequence[Parameter], shown: Callable[[Parameter], str]) -> dict[str, str]:
    """What is shown of each parameter, by its name with `*` for the index of a layer; there, with how many have it."""
    counts: dict[str, Counter[str]] = {}
    for parameter in parameters:
        name = "/".join("*" if part.isdecimal() else part for part in parameter.name.split("/"))
        counts.setdefault(name, Counter())[shown(parameter)] += 1
    return {
        name: ", ".join(f"{count} x {one}" if "*" in name else one for one, count in found.items())
        for name, found in counts.items()
    }


def _cost(spec: Spec) -> dict[str, str]:
    counted = report(spec, None, 1)
    usages = {f"forward, a {counted.unit}": counted.total.forward, "decoding step": counted.total.step}
    return {
        f"{name}: {what}": f"{amount:,.0f}"
        for name, usage in usages.items()
        if usage is not None
        for what, amount in (("FLOPs", usage.flops), ("bytes", usage.bytes))
    }
