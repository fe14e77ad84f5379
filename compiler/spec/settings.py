"""Settings over a spec: values that replace the file's, as `--set train.steps=100` does."""

import json
import re
from collections.abc import Mapping, Sequence

from xformc.compiler.spec.problems import Source, Span, SpecError
from xformc.compiler.spec.tree import Entry, Tree, parse_yaml
from xformc.errors import UserError

_PATH = re.compile(r"[^\s=.:#'\"{}\[\],&!|>%@`]+(\.[^\s=.:#'\"{}\[\],&!|>%@`]+)*\Z")


def parse_settings(settings: Sequence[str]) -> dict[str, Tree]:
    """Read settings written `PATH=VALUE`: names joined by dots, and a value in YAML.

    Returns: the values by path, each with its place. Raises: UserError for a wrong path, SpecError for a wrong value.
    """
    parsed: dict[str, Tree] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not _PATH.match(path):
            hint = "write --set PATH=VALUE, such as --set sizes.layers=2"
            raise UserError(f"--set: {setting[:100]!r} is not a setting", hint=hint)
        tree = parse_yaml(Source(f"--set {path}", f"{path}: {value}", setting=True))
        parsed[path] = tree.entries[path].tree
    return parsed


def settings_of(values: Mapping[str, object]) -> list[str]:
    """The same settings as text, from values in Python.

    Raises: UserError for a value that YAML has no word for.
    """
    try:
        return [f"{path}={json.dumps(value, allow_nan=False)}" for path, value in values.items()]
    except (TypeError, ValueError) as error:
        raise UserError(f"a setting cannot be written as YAML: {error}") from error


def apply_settings(tree: Tree, settings: Mapping[str, Tree]) -> Tree:
    """The tree with these values in place of its own. Raises: SpecError where a path leads into a value."""
    for path, value in settings.items():
        key = Span(value.span.source, 1, 1, len(path) + 1)
        tree = _replaced(tree, path.split("."), Entry(key, value))
    return tree


def _replaced(tree: Tree, names: Sequence[str], entry: Entry) -> Tree:
    if not isinstance(tree.value, dict):
        found = tree.described()
        raise SpecError.at(entry.key, f"there is no '{names[0]}' to set: a mapping is needed there, found {found}")
    name, *rest = names
    if rest:
        inner = tree.entries.get(name)
        below = Tree({}, entry.key) if inner is None else inner.tree
        entry = Entry(entry.key if inner is None else inner.key, _replaced(below, rest, entry))
    return Tree({**tree.entries, name: entry}, tree.span, tree.weight, tree.height)
