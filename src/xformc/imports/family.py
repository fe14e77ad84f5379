"""Reads families: YAML tables from the config and the weights of another library to a spec and its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from xformc.compiler.spec.load import load_tree, merge
from xformc.compiler.spec.problems import Problem, SpecError, listed, raise_problems
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import UserError, suggest

FAMILIES = Path(__file__).resolve().parent / "families"
MAX_LIKE = 4

_MAPPINGS = ("renamed", "joined", "defaults", "cases", "series", "spec", "weights", "copies")
_LISTS = ("architectures", "outside", "ignored", "surplus")
_PART = ("spec", "tie", "weights", "copies", "surplus", "ignored", "series", "cases")
ROW_KEYS = (
    "from",
    "pick",
    "transposed",
    "axes",
    "part",
    "of",
    "each",
    "rows",
    "plus",
    "shape",
    "gain",
    "gain_axis",
    "first",
)


@dataclass(frozen=True)
class Family:
    """A table. `cases` says for a key of the config what each value adds to `spec`, `weights`, `copies` and the lists.

    like: the family of which this one says what differs.
    outside: the names of weights, with `*` for any, that an export writes without the prefix.
    joined: the texts between the items of lists of the config that are read as one text.
    series: the items of a list of the config, which follow each other again and again.
    copies: the parameter of whose tensor a weight is a copy, if it is stored.
    """

    name: str
    like: str | None
    architectures: tuple[str, ...]
    prefix: str
    outside: tuple[str, ...]
    renamed: Mapping[str, str]
    joined: Mapping[str, str]
    defaults: Mapping[str, Tree]
    cases: Mapping[str, Mapping[str, Tree]]
    series: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    spec: Tree
    weights: Mapping[str, Tree]
    copies: Mapping[str, str]
    surplus: tuple[str, ...]

    def full_name(self, name: str) -> str:
        """The name of a weight with the prefix, if it has it."""
        return name if any(fnmatchcase(name, pattern) for pattern in self.outside) else self.prefix + name

    def with_part(self, part: Tree) -> "Family":
        """The family with what a case adds."""
        spec = part.get("spec")
        return replace(
            self,
            spec=_with_ties(self.spec if spec is None else _without_null(merge(self.spec, spec)), part),
            weights={**self.weights, **_trees(part, "weights")},
            copies={**self.copies, **_named(part, "copies")},
            surplus=(*self.surplus, *_words(part, "surplus")),
            ignored=(*self.ignored, *_words(part, "ignored")),
            series={**self.series, **_series(part)},
            cases={**self.cases, **cases_of(part)},
        )


def shipped_families() -> dict[str, Path]:
    """The file of each family that comes with xformc, by the `model_type` of its configs."""
    return {path.stem: path for path in sorted(FAMILIES.glob("*.yaml"))}


def find_family(model_type: str) -> Family:
    """The shipped family of a model_type. Raises: UserError if there is none."""
    found = shipped_families()
    if model_type not in found:
        hint = suggest(model_type, found) or "write a table of it, and give it with --map"
        raise UserError(
            f"there is no table of the family '{model_type[:100]}'; shipped are {', '.join(found)}", hint=hint
        )
    return load_family(found[model_type])


def load_family(path: Path) -> Family:
    """Read a table. Raises: SpecError with every mistake of its form; UserError if there is no file."""
    own = load_tree(path)
    tree, like = _with_base(own, 0), own.get("like")
    raise_problems(_mistakes(tree))
    return Family(
        name=path.stem,
        like=None if like is None else like.word,
        architectures=_words(tree, "architectures"),
        prefix=_prefix(tree),
        outside=_words(tree, "outside"),
        renamed=_named(tree, "renamed"),
        joined=_named(tree, "joined"),
        defaults=_trees(tree, "defaults"),
        cases=cases_of(tree),
        series=_series(tree),
        ignored=_words(tree, "ignored"),
        spec=tree.entries["spec"].tree,
        weights=_trees(tree, "weights"),
        copies=_named(tree, "copies"),
        surplus=_words(tree, "surplus"),
    )


def cases_of(tree: Tree) -> dict[str, dict[str, Tree]]:
    """The parts of a table, or of a case of it, by key of the config and value."""
    return {
        key: {value: entry.tree for value, entry in item.entries.items()} for key, item in _trees(tree, "cases").items()
    }


def _with_base(tree: Tree, depth: int) -> Tree:
    """The tree merged into the shipped family that it is `like`; cases, rows and lists are replaced whole. A case that
    is null is none.
    """
    like = tree.get("like")
    if like is None:
        return tree
    found = shipped_families()
    if like.word not in found or depth == MAX_LIKE:
        raise SpecError.at(like.span, "'like' must name a shipped family", f"shipped are {', '.join(found)}")
    base = _with_base(load_tree(found[like.word]), depth + 1)
    entries = {key: entry for key, entry in tree.entries.items() if key != "like"}
    for key, old in base.entries.items():
        entries[key] = Entry(old.key, _joined(key, old.tree, entries[key].tree)) if key in entries else old
    return Tree(entries, tree.span, tree.weight)


def _joined(key: str, base: Tree, over: Tree) -> Tree:
    if key == "spec":
        return _without_null(merge(base, over))
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    entries = {**base.entries, **over.entries}
    if key == "cases":
        entries = {name: entry for name, entry in entries.items() if entry.tree.value is not None}
    return Tree(entries, over.span)


def _without_null(tree: Tree) -> Tree:
    """The tree without the keys whose value is null, so that a spec takes away what another one says."""
    if not isinstance(tree.value, dict):
        return tree
    kept = {key: entry for key, entry in tree.entries.items() if entry.tree.value is not None}
    return Tree({key: Entry(entry.key, _without_null(entry.tree)) for key, entry in kept.items()}, tree.span)


def _with_ties(spec: Tree, part: Tree) -> Tree:
    """The spec with the groups of `tie` of a case, after its own."""
    tie, own = part.get("tie"), spec.get("tie")
    if tie is None:
        return spec
    groups = Tree((*(() if own is None else own.items), *tie.items), tie.span)
    return merge(spec, Tree({"tie": Entry(tie.span, groups)}, tie.span))


def _mistakes(tree: Tree) -> list[Problem]:
    """What is wrong with the form of a table."""
    if not isinstance(tree.value, dict):
        return [Problem(tree.span, f"a family must be a mapping, found {tree.described()}")]
    problems = _unknown_keys(tree, (*_MAPPINGS, *_LISTS, "prefix"))
    problems += _wrong_kinds(tree)
    problems += [
        Problem(tree.span, f"a family needs '{key}'") for key in ("spec", "weights") if key not in tree.entries
    ]
    holders = [tree]
    for holder in holders:  # which grows by the parts of its cases
        for case in _trees(holder, "cases").values():
            if not isinstance(case.value, dict):
                problems.append(Problem(case.span, f"a case must be a mapping from values, found {case.described()}"))
            holders += [part.tree for part in case.entries.values()]
    for part in holders[1:]:
        problems += _unknown_keys(part, _PART) + _wrong_kinds(part)
    for holder in holders:
        for item in _trees(holder, "series").values():
            if not (item.items and all(one.word for one in item.items)):
                problems.append(Problem(item.span, f"a series must be a list of words, found {item.described()}"))
        for row in _trees(holder, "weights").values():
            problems += _unknown_keys(row, ROW_KEYS)
            source = row.get("from") or row
            if not (source.word or (source.items and all(item.word for item in source.items))):
                problems.append(Problem(row.span, "a row must name the weight that it is from"))
    return problems


def _unknown_keys(tree: Tree, known: tuple[str, ...]) -> list[Problem]:
    return [
        Problem(entry.key, f"'{key[:40]}' must be {listed(known)}", suggest(key, known))
        for key, entry in tree.entries.items()
        if key not in known
    ]


def _wrong_kinds(tree: Tree) -> list[Problem]:
    problems: list[Problem] = []
    for key, entry in tree.entries.items():
        value = entry.tree
        if key in _MAPPINGS and not isinstance(value.value, dict):
            problems.append(Problem(value.span, f"'{key}' must be a mapping, found {value.described()}"))
        if key == "tie" and not isinstance(value.value, tuple):
            problems.append(Problem(value.span, f"'tie' must be a list of groups, found {value.described()}"))
        if key in _LISTS and not (isinstance(value.value, tuple) and all(item.word for item in value.items)):
            problems.append(Problem(value.span, f"'{key}' must be a list of names, found {value.described()}"))
        if key == "prefix" and not isinstance(value.value, str):
            problems.append(Problem(value.span, f"'prefix' must be a text, found {value.described()}"))
    if not isinstance(tree.value, dict):
        problems.append(Problem(tree.span, f"must be a mapping, found {tree.described()}"))
    return problems


def _trees(tree: Tree, key: str) -> dict[str, Tree]:
    section = tree.get(key)
    return {} if section is None else {name: entry.tree for name, entry in section.entries.items()}


def _named(tree: Tree, key: str) -> dict[str, str]:
    return {name: item.word for name, item in _trees(tree, key).items()}


def _series(tree: Tree) -> dict[str, tuple[str, ...]]:
    return {key: tuple(one.word for one in item.items) for key, item in _trees(tree, "series").items()}


def _words(tree: Tree, key: str) -> tuple[str, ...]:
    section = tree.get(key)
    return () if section is None else tuple(item.word for item in section.items)


def _prefix(tree: Tree) -> str:
    found = tree.get("prefix")
    return "" if found is None else found.word
