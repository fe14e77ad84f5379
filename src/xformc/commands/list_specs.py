"""`xformc list`: the specs that come with xformc."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from xformc.commands.options import Json
from xformc.specs import shipped_specs

if TYPE_CHECKING:
    from xformc.compiler.spec.tree import Tree


def list_specs(*, as_json: Json = False) -> None:
    """List the shipped specs, with their tasks, or the kinds of their results.

    \b
    xformc list
    xformc list --json

    `xformc check NAME` shows one of them; `extends: NAME` in a spec of your own starts from it.
    """
    from xformc.compiler.spec.load import load_tree

    found = [(name, _task(load_tree(path)), _about(path)) for name, path in shipped_specs().items()]
    if as_json:
        print(json.dumps([{"name": name, "task": task, "about": about} for name, task, about in found]))
        return
    width = max(len(name) for name, *_ in found)
    for name, task, about in found:
        print(f"{name:<{width}}  {task:<14}  {about}")


def _task(tree: "Tree") -> str:
    """The task, or the kinds of results."""
    from xformc.compiler.results.kind import KINDS

    results, task = tree.get("results"), tree.get("task")
    if results is None:
        return "" if task is None else task.word
    return ", ".join(kind for entry in results.entries.values() for kind in entry.tree.entries if kind in KINDS)


def _about(path: Path) -> str:
    """The first sentence of the comment at the top of a spec."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = [line[1:].strip() for line in lines if line.startswith("#") and "$schema" not in line]
    return " ".join(comment).partition(". ")[0].rstrip(".")
