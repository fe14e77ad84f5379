"""Finds the config of a family that gives a spec: the family's table read backwards."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose

from xformc.compiler.spec import Spec
from xformc.compiler.spec.tree import Plain, Scalar, Tree
from xformc.errors import UserError
from xformc.exports.observe import leaves, observed
from xformc.imports.config import ARCHITECTURE, KEY, NULL, OTHERWISE, Config
from xformc.imports.family import Family, cases_of

ROUNDS = 4
"""How often the values are looked for again with those that were found."""


@dataclass
class Solution:
    """The values of a config by key, and the family with the cases that they choose."""

    spec: Spec
    family: Family
    values: dict[str, Scalar] = field(default_factory=dict[str, Scalar])

    def config(self, **more: Scalar) -> Config:
        """The config as far as it is known."""
        return Config({**self.values, **more}, self.family)


def solve(family: Family, spec: Spec) -> Solution:
    """The config whose spec by the family's table is as near to this spec as the table can come."""
    found = Solution(spec, family)
    _numbers(found)
    cases = [*family.cases.items()]
    for key, parts in cases:  # which grow by those of the parts that are chosen
        if not key.endswith(".*"):
            cases += cases_of(_choose(found, key, parts)).items()
    _numbers(found)
    found.values |= _in_turn(found)
    return found


def unsaid(found: Solution) -> dict[str, set[str]]:
    """The values of the family's spec, by paths with dots, that need keys of the config which the model does not say,
    and these keys.
    """
    needed = {".".join(path): _unknown(found, tree) for path, tree in leaves(found.family.spec, deep=True)}
    return {path: keys for path, keys in needed.items() if keys}


def _unknown(found: Solution, tree: Tree, within: frozenset[str] = frozenset()) -> set[str]:
    """The keys of a text, or of the defaults of its keys, that have no value."""
    keys: set[str] = set()
    for key in (key for word in tree.words() for key in KEY.findall(word)):
        default = found.family.defaults.get(key)
        if found.values.get(key) is None and key not in within:
            keys |= {key} if default is None else _unknown(found, default, within | {key})
    return keys


def _in_turn(found: Solution) -> dict[str, Scalar]:
    """The lists whose items follow each other again and again, one item for each layer."""
    layers = observed(found.spec, ("sizes", "layers"))
    return {
        f"{key}.{index}": _value(words[index % len(words)])
        for key, words in found.family.series.items()
        for index in range(layers if isinstance(layers, int) else 0)
    }


def _numbers(found: Solution) -> None:
    """Compute the keys that stand in the table's spec, from the spec's own numbers."""
    for _ in range(ROUNDS):
        for path, tree in leaves(found.family.spec, deep=True):
            unknown = {key for key in KEY.findall(tree.word) if key not in found.values}
            value = observed(found.spec, path) if len(unknown) == 1 else None
            if value is not None:
                (key,) = unknown
                found.values |= _solved(found, key, tree, value)


def _solved(found: Solution, key: str, tree: Tree, value: Plain) -> dict[str, Scalar]:
    """The key for which the tree's text is the value; for a text that is the key alone, the value itself."""
    if tree.word == f"${key}":
        if isinstance(value, list):
            return {f"{key}.{index}": item for index, item in enumerate(value) if isinstance(item, int | float)}
        return {key: value} if isinstance(value, int | float) else {}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    for trial in _trials(found, key, tree, value):
        whole = round(trial)
        number = whole if isclose(whole, trial, rel_tol=1e-12) else trial
        if _same(_filled(found, tree, {key: number}), value):
            return {key: number}
    return {}


def _trials(found: Solution, key: str, tree: Tree, value: float) -> Iterator[float]:
    """The key if the text is `a key + b`, or `a / key`."""
    one, two = (_filled(found, tree, {key: number}) for number in (1, 2))
    if isinstance(one, int | float) and isinstance(two, int | float):
        if one != two:
            yield (value - one) / (two - one) + 1
        if value:
            yield one / value


def _filled(found: Solution, tree: Tree, more: Mapping[str, Scalar]) -> Plain:
    try:
        return found.config(**more).filled(tree)
    except UserError:
        return None


def _choose(found: Solution, key: str, parts: Mapping[str, Tree]) -> Tree:
    """Choose and return the case of a key that the spec contradicts least, and of several the one that says most."""
    usual, allowed = _text(_usual(found, key)), found.family.architectures
    kept = {text: part for text, part in parts.items() if key != ARCHITECTURE or not allowed or text in allowed}
    text = max(kept, key=lambda text: (*_agreement(found, kept[text]), text == usual))
    found.family = found.family.with_part(kept[text])
    if text == OTHERWISE:
        _numbers(found)
    elif text == NULL:
        found.values[key] = None
    elif (value := _value(text)) is not None:
        found.values[key] = value
    return kept[text]


def _agreement(found: Solution, part: Tree) -> tuple[int, int]:
    """Minus the number of values of a case that differ from the spec's, and the number of those that do not."""
    spec, wrong, right = part.get("spec"), 0, 0
    for path, tree in () if spec is None else leaves(spec):
        own = observed(found.spec, path)
        known = own is not None
        same = (_is_open(found, tree) or _same(_filled(found, tree, {}), own)) if known else tree.value is None
        right, wrong = (right + 1, wrong) if same else (right, wrong + 1)
    tie, own = part.get("tie"), found.spec.tree.get("tie")
    groups = [] if own is None else [group.plain() for group in own.items]
    for group in () if tie is None else tie.items:
        right, wrong = (right + 1, wrong) if group.plain() in groups else (right, wrong + 1)
    return -wrong, right


def _is_open(found: Solution, tree: Tree) -> bool:
    """Whether a text, or one within, has a key that is not known yet."""
    return any(key not in found.values for word in tree.words() for key in KEY.findall(word))


def _usual(found: Solution, key: str) -> Scalar:
    try:
        return replace(found.config(), used=set()).value(key)
    except UserError:
        return None


def _same(one: Plain, other: Plain) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=1e-9)
    return one == other


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Scalar:
    """The value of a config that a case's text stands for."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else None
