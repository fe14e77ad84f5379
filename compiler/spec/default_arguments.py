"""The section `defaults` of a spec: arguments of steps that do not write them, by primitive or block."""

from collections.abc import Iterator, Mapping

from xformc.compiler.graph.primitives import Kind
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.signature import Signature
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest

Defaults = Mapping[str, Mapping[str, Tree]]

KINDS: tuple[Kind, ...] = ("number", "numbers", "flag", "word", "axis", "axes", "initial")
"""The kinds of arguments that mean the same in every block."""


def read_defaults(tree: Tree, signatures: Mapping[str, Signature], problems: list[Problem]) -> Defaults:
    """The arguments by step and name; mistakes are appended to `problems`."""
    found: dict[str, dict[str, Tree]] = {}
    for step, entry in _entries(tree):
        signature = signatures.get(step)
        if signature is None:
            if is_own(entry, tree):
                problems.append(
                    Problem(entry.key, f"no step of the model is called '{step}'", suggest(step, signatures))
                )
            continue
        optional = {name: item.kind for name, item in signature.parameters.items() if not item.required}
        known = [name for name, kind in optional.items() if kind in KINDS]
        for name, given in entry.tree.entries.items():
            if name in known:
                found.setdefault(step, {})[name] = given.tree
            else:
                hint = suggest(name, known) or f"these have defaults: {', '.join(known) or 'none'}"
                problems.append(Problem(given.key, f"{step} has no optional argument '{name[:40]}'", hint))
    return found


def unused_defaults(tree: Tree, used: frozenset[tuple[str, str]]) -> list[Problem]:
    """Report the file's own defaults that no step takes."""
    return [
        Problem(given.key, f"no {step} takes this default of '{name}'", "every step writes it, or there is none")
        for step, entry in _entries(tree)
        for name, given in entry.tree.entries.items()
        if (step, name) not in used and is_own(given, tree)
    ]


def _entries(tree: Tree) -> Iterator[tuple[str, Entry]]:
    section = tree.get("defaults")
    yield from () if section is None else section.entries.items()
