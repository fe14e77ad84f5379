"""Reads specs: the file, the specs that it extends, the blocks that it imports, and the shipped blocks."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

from xformc.compiler.spec.problems import Source, Span, SpecError
from xformc.compiler.spec.tree import MAX_BYTES, Entry, Tree, parse_yaml
from xformc.errors import UserError
from xformc.specs import BLOCKS, SHIPPED, find_shipped

MAX_EXTENDS = 16
MAX_IMPORTS = 16
_WHOLE = (("blocks",), ("inputs",), ("model", "do"))
"""Keys whose value is replaced as a whole by a later file: a block, an input, and a stage's `do`."""
_ONE_OF = (("train", "optimizer"), ("train", "objective"))
"""Sections with one of several parts, which are replaced as a whole, too."""


def load_tree(path: Path) -> Tree:
    """Read a file and merge it into what it extends; imported blocks are among its blocks.

    Raises: SpecError; UserError if there is no file.
    """
    return _extended(path, _imported(path.parent, _read(path)), (path.resolve(),))


@cache
def shipped_blocks() -> dict[str, Entry]:
    """The blocks of specs/blocks, by name."""
    blocks: dict[str, Entry] = {}
    for path in sorted(BLOCKS.glob("*.yaml")):
        tree = _read(path, shipped=True)
        twice = blocks.keys() & tree.entries.keys()
        assert not twice, f"shipped blocks defined twice: {twice}"
        blocks.update(tree.entries)
    return blocks


def merge(base: Tree, over: Tree, keys: tuple[str, ...] = ()) -> Tree:
    """Merge mappings key by key; replace lists, scalars, blocks, inputs, optimizers and `do` of stages as a whole."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)) or _is_whole(keys):
        return over
    entries = dict(base.entries)
    for key, entry in over.entries.items():
        old = entries.get(key)
        entries[key] = entry if old is None else Entry(entry.key, merge(old.tree, entry.tree, (*keys, key)))
    return Tree(entries, over.span)


def is_own(entry: Entry, tree: Tree) -> bool:
    """Whether the entry comes from the file itself or from a setting, not from a spec that it extends."""
    return entry.key.source.setting or entry.key.source == tree.span.source


def own_results(tree: Tree) -> Tree:
    """The tree without an inherited task if the file or a setting declares results, and the other way round."""
    task, results = tree.entries.get("task"), tree.entries.get("results")
    if task is None or results is None or is_own(task, tree) == is_own(results, tree):
        return tree
    inherited = "results" if is_own(task, tree) else "task"
    return replace(tree, value={key: entry for key, entry in tree.entries.items() if key != inherited})


def _is_whole(keys: tuple[str, ...]) -> bool:
    return len(keys) > 1 and (keys in _ONE_OF or (keys[0], *keys[2:]) in _WHOLE)


def _extended(path: Path, tree: Tree, chain: tuple[Path, ...]) -> Tree:
    extends = tree.get("extends")
    if extends is None or not isinstance(tree.value, dict):
        return tree
    if not isinstance(extends.value, str):
        raise SpecError.at(extends.span, f"'extends' must name a spec, found {extends.described()}")
    found = _find(extends.value, extends.span, path.parent)
    if found.resolve() in chain:
        circle = " -> ".join(item.stem for item in (*chain[chain.index(found.resolve()) :], found))
        raise SpecError.at(extends.span, f"a spec extends itself: {circle}")
    if len(chain) > MAX_EXTENDS:
        raise SpecError.at(extends.span, f"more than {MAX_EXTENDS} specs extend each other")
    base = _extended(found, _imported(found.parent, _read(found)), (*chain, found.resolve()))
    if not isinstance(base.value, dict):
        raise SpecError.at(base.span, f"a spec must be a mapping, found {base.described()}")
    rest = {key: entry for key, entry in tree.value.items() if key != "extends"}
    return own_results(merge(base, Tree(rest, tree.span, tree.weight)))


def _find(name: str, span: Span, folder: Path) -> Path:
    """The file that `extends: name` refers to: next to the extending file, else a shipped spec."""
    file = _contained(name, span, folder, "name a shipped spec, or a file in this folder")
    if file is not None:
        return file
    try:
        return find_shipped(str(PurePosixPath(name)).removesuffix(".yaml"))
    except UserError as error:
        raise SpecError.at(span, error.message, error.hint) from None


def _contained(name: str, span: Span, folder: Path, hint: str) -> Path | None:
    """The YAML file of this name in the folder, or None. Raises: SpecError if the name leads out of the folder."""
    parts = PurePosixPath(name)
    outside = SpecError.at(span, f"'{name[:100]}' is outside the spec's folder", hint)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name or not parts.parts:
        raise outside
    file = folder / (parts if parts.suffix == ".yaml" else parts.with_name(f"{parts.name}.yaml"))
    if not _is_file(file):
        return None
    if not file.resolve().is_relative_to(folder.resolve()):
        raise outside
    return file


def _imported(folder: Path, tree: Tree) -> Tree:
    """The tree with the blocks of the files under `import`, which its own blocks replace. Raises: SpecError."""
    section = tree.get("import")
    if section is None:
        return tree
    if not isinstance(section.value, tuple) or not all(item.word for item in section.items):
        message = f"'import' must list files of blocks, found {section.described()}"
        raise SpecError.at(section.span, message, "such as import: [my_blocks]")
    if len(section.items) > MAX_IMPORTS:
        raise SpecError.at(section.span, f"more than {MAX_IMPORTS} imports")
    blocks: dict[str, Entry] = {}
    for item in section.items:
        for name, entry in _library(item, folder).items():
            if name in blocks:
                place = blocks[name].key.place
                raise SpecError.at(entry.key, f"the block '{name[:40]}' is imported twice", f"the first is at {place}")
            blocks[name] = entry
    own = tree.entries.get("blocks", Entry(section.span, Tree({}, section.span)))
    if not isinstance(own.tree.value, dict):
        return tree  # the schema refuses it
    merged = Entry(own.key, Tree({**blocks, **own.tree.entries}, own.tree.span))
    rest = {name: entry for name, entry in tree.entries.items() if name != "import"}
    return Tree({**rest, "blocks": merged}, tree.span, tree.weight)


def _library(item: Tree, folder: Path) -> dict[str, Entry]:
    """The blocks of one imported file, by name."""
    hint = "import names YAML files of blocks in the spec's folder"
    file = _contained(item.word, item.span, folder, hint)
    if file is None:
        raise SpecError.at(item.span, f"there is no file '{item.word[:100]}.yaml'".replace(".yaml.yaml", ".yaml"), hint)
    tree = _read(file, library=True)
    if not isinstance(tree.value, dict):
        message = f"a file of blocks must be a mapping from names to blocks, found {tree.described()}"
        raise SpecError.at(tree.span, message)
    return tree.value


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _read(path: Path, *, shipped: bool = False, library: bool = False) -> Tree:
    shown = _shown(path)
    try:
        if not path.is_file():
            reason = "it is a folder" if path.is_dir() else "there is no such file"
            raise UserError(f"cannot read the spec: {reason}", place=shown)
        with path.open("rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"cannot read the spec: {reason}", place=shown) from None
    return parse_yaml(replace(_decode(shown, data), shipped=shipped, library=library))


def _decode(shown: str, data: bytes) -> Source:
    if len(data) > MAX_BYTES:
        source = Source(shown, "")
        raise SpecError.at(Span(source, 1, 1, 2), f"larger than {MAX_BYTES // 1024} KiB, the limit for a spec")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        source = Source(shown, data.decode("utf-8", "replace"))
        column = len(before) - before.rfind("\n")
        span = Span(source, before.count("\n") + 1, column, column + 1)
        raise SpecError.at(span, "not UTF-8 text", "a spec is a YAML file in UTF-8") from None
    return Source(shown, text.replace("\r\n", "\n"))


def _shown(path: Path) -> str:
    """The path as messages show it: as given, relative to the working folder, or inside xformc."""
    text = str(path)
    if path.is_relative_to(SHIPPED):
        text = f"xformc/specs/{path.relative_to(SHIPPED).as_posix()}"
    elif path.is_absolute():
        relative = os.path.relpath(path)
        text = text if relative.startswith("..") else relative
    return "".join(c if c.isprintable() else "?" for c in text)
