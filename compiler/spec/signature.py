"""The signatures of blocks and primitives: their arguments in order, each with its kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from xformc.compiler.graph.primitives import Kind, Primitive
from xformc.compiler.spec.problems import Problem, listed
from xformc.compiler.spec.tree import Tree
from xformc.errors import suggest

TAKEN_KINDS: tuple[Kind, ...] = get_args(Kind)
STEP_KEYS = ("from", "repeat", "index", "shared", "carry", "do")
"""The keys of a step with a body."""
NOT_A_CHOICE = "'choose' must name a choice or a word argument, or be arithmetic on numbers"
_BLOCK_KEYS = ("doc", "takes", "choose", "do")


@dataclass(frozen=True)
class Parameter:
    """One argument of a block or primitive: its kind and its default."""

    kind: Kind
    required: bool = True
    default: Tree | None = None


@dataclass(frozen=True)
class Signature:
    """The arguments of a block or primitive, in order. `transparent`: it adds no level of its own to paths."""

    parameters: Mapping[str, Parameter]
    transparent: bool = False


def signature_of_primitive(primitive: Primitive) -> Signature:
    """The signature of a primitive."""
    parameters = {name: Parameter(item.kind, item.required) for name, item in primitive.takes.items()}
    return Signature(parameters, primitive.transparent)


def signature_of(tree: Tree, problems: list[Problem]) -> Signature:
    """The signature of the block that this tree defines; also checks its other keys."""
    problems.extend(_form_problems(tree))
    doc = tree.get("doc")
    if doc is not None and not isinstance(doc.value, str):
        problems.append(Problem(doc.span, f"'doc' must be text, found {doc.described()}"))
    takes = tree.get("takes")
    if takes is None:
        return Signature({})
    if not isinstance(takes.value, dict):
        problems.append(Problem(takes.span, f"'takes' must be a mapping of names to kinds, found {takes.described()}"))
    return Signature(dict(_parameters(takes, problems)))


def _form_problems(tree: Tree) -> Iterator[Problem]:
    entries, choose = tree.entries, tree.get("choose")
    if not isinstance(tree.value, dict):
        yield Problem(tree.span, f"a block must be a mapping with 'do' or 'choose', found {tree.described()}")
    elif ("do" in entries) == ("choose" in entries):
        yield Problem(tree.span, "a block needs exactly one of 'do' and 'choose'")
    elif choose is not None and not choose.word:
        yield Problem(choose.span, NOT_A_CHOICE)
    elif choose is None:
        for key in entries.keys() - set(_BLOCK_KEYS):
            hint = suggest(key, _BLOCK_KEYS) or "the keys of a block are doc, takes and do"
            yield Problem(entries[key].key, f"unknown key '{key[:40]}'", hint)


def _parameters(takes: Tree, problems: list[Problem]) -> Iterator[tuple[str, Parameter]]:
    for name, entry in takes.entries.items():
        tree = entry.tree
        if not is_name(name) or name in ("x", "from", "repeat", "do"):
            problems.append(Problem(entry.key, f"'{name[:40]}' cannot be the name of an argument"))
        if isinstance(tree.value, str) and tree.value in TAKEN_KINDS:
            yield name, Parameter(_kind(tree.value))
        elif isinstance(tree.value, bool):
            yield name, Parameter("flag", required=False, default=tree)
        elif isinstance(tree.value, int | float):
            yield name, Parameter("number", required=False, default=tree)
        elif len(tree.entries) == 1 and next(iter(tree.entries)) in TAKEN_KINDS:
            ((kind, default),) = tree.entries.items()
            yield name, Parameter(_kind(kind), required=False, default=default.tree)
        else:
            hint = f"a kind is {listed(TAKEN_KINDS)}; {{number: d_ff}} sets a default"
            problems.append(Problem(tree.span, f"{tree.described()} is not a kind of argument", hint))


def _kind(word: str) -> Kind:
    return next(kind for kind in get_args(Kind) if kind == word)


def is_name(text: str) -> bool:
    """Whether this is a name: a letter, then ASCII letters, digits and _; at most 64 characters."""
    return text.isascii() and text.isidentifier() and not text.startswith("_") and len(text) <= 64
