"""What differs between two specs: sizes, choices, inputs, settings, parameters and cost."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xformc.compiler.explain.cost.spec_cost import report
from xformc.compiler.spec import Spec

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
        "settings": _pairs(*map(_settings, both)),
        "parameters": _pairs(*map(_parameters, both)),
        "cost": _pairs(*map(_cost, both)),
    }
    return Differences((first.name, second.name), {name: pairs for name, pairs in sections.items() if pairs})


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


def _inputs(spec: Spec) -> dict[str, str]:
    return {
        name: " ".join(filter(None, (item.kind, *map(str, item.axes), item.of and f"of {item.of}")))
        for name, item in spec.inputs.items()
    }


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
    counts: dict[str, Counter[str]] = {}
    for parameter in spec.graph().parameters:
        name = "/".join("*" if part.isdecimal() else part for part in parameter.name.split("/"))
        sized = (str(axis) if spec.sizes.get(axis.name) != axis.size else axis.name for axis in parameter.type.axes)
        axes = f"[{', '.join(sized)}]"
        counts.setdefault(name, Counter())[axes] += 1
    found = {
        name: ", ".join(f"{count} x {axes}" if "*" in name else axes for axes, count in axes_counts.items())
        for name, axes_counts in counts.items()
    }
    return {**found, "total": f"{spec.graph().parameter_count():,}"}


def _cost(spec: Spec) -> dict[str, str]:
    counted = report(spec, None, 1)
    usages = {f"forward, a {counted.unit}": counted.total.forward, "decoding step": counted.total.step}
    return {
        f"{name}: {what}": f"{amount:,.0f}"
        for name, usage in usages.items()
        if usage is not None
        for what, amount in (("FLOPs", usage.flops), ("bytes", usage.bytes))
    }
