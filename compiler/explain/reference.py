"""The reference of the spec language, from what the compiler itself knows; `make docs` writes it."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from xformc.compiler.graph import rules
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec.load import shipped_blocks
from xformc.compiler.spec.schema import Document
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.tree import Tree

HEAD = """\
# Reference of the spec language

Written by `make docs` from the schema, the primitives, the shipped blocks and the rule tables; a test compares it with
them. [The spec language](language.md) teaches what is listed here.
"""

TABLES: dict[str, rules.Table[Any]] = {
    "types": rules.types,
    "mixes": rules.mixes,
    "hidden": rules.hidden,
    "to_torch": rules.to_torch,
    "to_onnx": rules.to_onnx,
    "to_step": rules.to_step,
    "cost": rules.cost,
}


def reference() -> str:
    """The page, in Markdown."""
    parts = [HEAD, *_sections(), *_primitives(), *_blocks(), *_ops()]
    return "\n".join(parts).rstrip() + "\n"


def _sections() -> Iterator[str]:
    yield "## Sections\n"
    yield "| key | what it is |\n|---|---|"
    for name, field in Document.model_fields.items():
        key = field.alias or name
        yield f"| `{key}` | {_SECTIONS[key]} |"
    for title, section in (("train", Train), ("decode", Decode)):
        yield f"\n### `{title}`\n"
        yield _first(section.__doc__)
        yield "\n| key | default | bounds |\n|---|---|---|"
        yield from _settings(section, "")


_SECTIONS = {
    "extends": "another spec, which this one changes",
    "name": "the name of the model; that of the file if it is left out",
    "task": "translation, language_model, tagging or classification",
    "sizes": "numbers with names, or arithmetic on them; axes are named after them",
    "choices": "words; a block says what each means",
    "inputs": "what the model is given: tokens, vectors, values or edges",
    "blocks": "bodies with names, beside the shipped ones or in their place",
    "model": "the stages; the last gives the result",
    "tie": "groups of parameters that are one",
    "train": "how to train it",
    "decode": "the defaults of decoding",
    "precision": "in which numbers an engine stores the weights under a path, and all others (`default`)",
}


def _settings(section: type[BaseModel], before: str) -> Iterator[str]:
    """A row for each setting, those of sections inside it after it."""
    properties: dict[str, dict[str, Any]] = section.model_json_schema().get("properties", {})
    for name, field in section.model_fields.items():
        inner = _section_in(field.annotation)
        if inner is not None:
            yield from _settings(inner, f"{before}{name}.")
            continue
        default = "" if field.default is None else f"`{field.default}`"
        yield f"| `{before}{name}` | {default} | {_bounds(properties.get(name, {}))} |"


def _section_in(annotation: object) -> type[BaseModel] | None:
    inside = (annotation, *getattr(annotation, "__args__", ()))
    return next((item for item in inside if isinstance(item, type) and issubclass(item, BaseModel)), None)


def _bounds(schema: dict[str, Any]) -> str:
    either: list[dict[str, Any]] = schema.get("anyOf", [])
    for item in either:
        schema = {**schema, **item} if item.get("type") != "null" else schema
    if "enum" in schema:
        return ", ".join(f"`{item}`" for item in schema["enum"])
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
    }
    return ", ".join(f"{text} {schema[key]:,}" for key, text in words.items() if key in schema) or str(
        schema.get("type", "")
    )


def _primitives() -> Iterator[str]:
    yield "\n## Primitives\n"
    yield "Arguments in order, each with its kind; those in brackets may be left out.\n"
    yield "| step | arguments | makes |\n|---|---|---|"
    for name in sorted(PRIMITIVES):
        item = PRIMITIVES[name]
        taken = (f"`{key}` {t.kind}" if t.required else f"[`{key}` {t.kind}]" for key, t in item.takes.items())
        yield f"| `{name}` | {', '.join(taken)} | {_first(item.doc)} |"


def _blocks() -> Iterator[str]:
    yield "\n## Shipped blocks\n"
    yield "| block | takes | chooses by | what it is |\n|---|---|---|---|"
    for name, entry in sorted(shipped_blocks().items()):
        tree = entry.tree
        doc, choose = tree.get("doc"), tree.get("choose")
        words = [key for key in tree.entries if key not in ("doc", "takes", "choose")]
        chosen = f"`{choose.value}`: {', '.join(words)}" if choose is not None else ""
        yield f"| `{name}` | {_takes(tree.get('takes'))} | {chosen} | {doc.value if doc is not None else ''} |"


def _takes(takes: Tree | None) -> str:
    if takes is None:
        return ""
    return ", ".join(f"`{name}` {_kind(entry.tree)}" for name, entry in takes.entries.items())


def _kind(tree: Tree) -> str:
    if tree.entries:
        ((kind, default),) = tree.entries.items()
        return f"{kind} ({default.tree.plain()})"
    return str(tree.plain()).lower()


def _ops() -> Iterator[str]:
    yield "\n## Ops\n"
    yield (
        "`types`: axes and dtypes; `mixes`: the axes whose positions see each other; `hidden`: what\n"
        "becomes of keys that come later; `to_step`: how it is decoded, where it mixes positions (all else is its own\n"
        "step); `cost`: see the report.\n"
    )
    yield f"| op | {' | '.join(TABLES)} | what it computes |\n|---|{'---|' * (len(TABLES) + 1)}"
    for kind in sorted(Op.registry):
        op = Op.registry[kind]
        marks = ("x" if kind in table.kinds() else "" for table in TABLES.values())
        yield f"| `{kind}` | {' | '.join(marks)} | {_first(inspect.getdoc(op))} |"


def _first(text: str | None) -> str:
    """The first paragraph, on one line, as a cell of a table."""
    paragraph = inspect.cleandoc(text or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
