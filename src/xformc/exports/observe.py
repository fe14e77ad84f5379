"""What a spec says at a path of its sections, with numbers computed, for comparison with what a table would write."""

import inspect
from collections.abc import Iterator, Sequence

from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec import Spec
from xformc.compiler.spec.expressions import ExpressionError, parse_expression
from xformc.compiler.spec.special_tokens import NONE
from xformc.compiler.spec.tree import Plain, Tree
from xformc.format.tokens import SpecialTokens

_DEPTH = {"blocks": 2, "inputs": 2, "results": 3, "model": 3, "tie": 1, "special_tokens": 2}
"""The depth at which values of a section are compared as a whole."""

_UNSAID = ("extends", "name")

Path = tuple[str, ...]


def leaves(tree: Tree, path: Path = (), *, deep: bool = False) -> Iterator[tuple[Path, Tree]]:
    """The values of a spec's sections, each with its path; those below _DEPTH if `deep`."""
    if path and (not isinstance(tree.value, dict) or (not deep and len(path) == _DEPTH.get(path[0]))):
        yield path, tree
        return
    for key, entry in tree.entries.items():
        if path or key not in _UNSAID:
            yield from leaves(entry.tree, (*path, key), deep=deep)


def observed(spec: Spec, path: Path) -> Plain:
    """The value at a path of the spec's tree, or None if it says nothing there."""
    section, keys = path[0], list(path[1:])
    if section == "sizes":
        return spec.sizes.get(keys[0])
    if section == "special_tokens":
        return _special(spec, keys[0])
    if section == "defaults" and len(keys) == 2:
        return _default(spec, keys[0], keys[1])
    if section in ("decode", "train"):
        return _within(spec.decode.model_dump() if section == "decode" else spec.train.model_dump(), keys)
    found = spec.tree.get(*path)
    return None if found is None else found.plain()


def special_of(spec: Spec) -> SpecialTokens | None:
    """The special tokens of the written text, or else of the first one; None if there is no text."""
    texts = {name: item.special for name, item in spec.inputs.items() if item.kind == "tokens"}
    return texts.get(str(spec.written), next(iter(texts.values()), None))


def _special(spec: Spec, key: str) -> Plain:
    special = special_of(spec)
    if special is None:
        return None
    if key == "end":
        return list(special.end) if len(special.end) > 1 else special.last
    ids = {"pad": special.pad, "unknown": special.unknown, "begin": special.begin}
    return NONE if ids.get(key) is None else ids[key]


def _default(spec: Spec, step: str, argument: str) -> Plain:
    """The default argument of a step: the spec's, or the primitive's own."""
    tree = spec.model.defaults.get(step, {}).get(argument)
    if tree is not None:
        return computed(spec, tree.plain())
    known = inspect.signature(PRIMITIVES[step].apply).parameters.get(argument) if step in PRIMITIVES else None
    own: object = None if known is None else known.default
    return own if isinstance(own, bool | int | float | str) else None


def computed(spec: Spec, value: Plain) -> Plain:
    """The number that a text of sizes is, or the value itself."""
    if not isinstance(value, str):
        return value
    try:
        return parse_expression(value).value(lambda name, _: spec.sizes[name])
    except (KeyError, ExpressionError):
        return value


def _within(content: Plain, keys: Sequence[str]) -> Plain:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content
