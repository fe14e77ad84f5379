"""The reference of the spec language, generated from the compiler's own tables by `make docs`."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from xformc.compiler.graph import rules
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.results.kind import KINDS, Allowed
from xformc.compiler.spec.load import shipped_blocks
from xformc.compiler.spec.schema import Document
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.tree import Tree

HEAD = """\
# Reference of the spec language

`make docs` generates this page from the schema, the primitives, the shipped blocks and the rule tables. A test keeps it
up to date. For an introduction, see [The spec language](language.md).
"""

TABLES: dict[str, rules.Table[Any]] = {
    "types": rules.types,
    "mixes": rules.mixes,
    "hidden": rules.hidden,
    "to_torch": rules.to_torch,
    "to_onnx": rules.to_onnx,
    "to_step": rules.to_step,
    "cost": rules.cost,
    "lengths": rules.lengths,
}


def reference() -> str:
    """Return the page in Markdown."""
    parts = [HEAD, *_sections(), *_primitives(), *_blocks(), *_ops()]
    return "\n".join(parts).rstrip() + "\n"


def _sections() -> Iterator[str]:
    yield "## Sections\n"
    yield "| key | meaning |\n|---|---|"
    for name, field in Document.model_fields.items():
        key = field.alias or name
        yield f"| `{key}` | {_SECTIONS[key]} |"
    for title, section in (("train", Train), ("decode", Decode)):
        yield f"\n### `{title}`\n"
        yield _first(section.__doc__)
        yield "\n| key | default | bounds |\n|---|---|---|"
        yield from _settings(section, "")
    yield "\n### `results`\n"
    yield "The kinds of results, with their settings. `train.losses` sets those of their losses, and `weight`."
    yield "\n| kind | settings | loss | meaning |\n|---|---|---|---|"
    for name, kind in KINDS.items():
        yield f"| `{name}` | {_allowed(kind.settings)} | {_allowed(kind.losses)} | {_first(kind.__doc__)} |"


def _allowed(settings: Allowed) -> str:
    """Settings with their defaults, of words all."""
    words = {key: "/".join(value) if isinstance(value, tuple) else str(value) for key, value in settings.items()}
    return ", ".join(f"`{key}: {word}`" for key, word in words.items())


_SECTIONS = {
    "extends": "the spec that this one changes",
    "import": "files beside the spec whose blocks it may use",
    "name": "the name of the model; default: the name of the file",
    "task": "translation, language_model, tagging or classification",
    "sizes": "named numbers, or arithmetic on other sizes; axes are named after sizes",
    "choices": "words; blocks define what each word means",
    "defaults": "arguments of the steps that do not write them, by primitive or block",
    "inputs": "the inputs of the model: tokens, vectors, values or edges",
    "special_tokens": "the ids of padding, unknown, begin and end in the vocabularies",
    "results": "the results of the model, instead of a task: a kind and a stage for each name",
    "blocks": "named bodies, which add to the shipped blocks or replace them",
    "model": "the stages of the model; the last one that no other uses computes the result",
    "tie": "groups of parameters that share one weight, by path or pattern",
    "train": "the training recipe",
    "decode": "the defaults for decoding",
    "initial": "the initial values of parameters, by path, and of all others that are random (`default`)",
    "precision": "the number format of the engine's weights, by path, and for all others (`default`)",
}


def _settings(section: type[BaseModel], before: str) -> Iterator[str]:
    """Yield a row for each setting, and for the settings of sections inside it."""
    properties: dict[str, dict[str, Any]] = section.model_json_schema().get("properties", {})
    for name, field in section.model_fields.items():
        inner = _section_in(field.annotation)
        if inner is not None:
            yield from _settings(inner, f"{before}{name}.")
            continue
        optional = field.default is None or field.default_factory is not None
        default = "required" if field.is_required() else "" if optional else f"`{field.default}`"
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
    yield "Arguments are listed in order, each with its kind. Those in brackets are optional; their default follows.\n"
    yield "| step | arguments | result |\n|---|---|---|"
    for name in sorted(PRIMITIVES):
        item = PRIMITIVES[name]
        defaults = inspect.signature(item.apply).parameters
        taken = (
            f"`{key}` {t.kind}" if t.required else f"[`{key}` {t.kind}{_default(defaults.get(key))}]"
            for key, t in item.takes.items()
        )
        yield f"| `{name}` | {', '.join(taken)} | {_first(item.doc)} |"


def _default(argument: inspect.Parameter | None) -> str:
    """The default of an argument as a spec writes it, or nothing if what is not given has a meaning of its own."""
    default: object = None if argument is None else argument.default
    several = () if default is None else (default,)
    each = cast("tuple[object, ...]", default) if isinstance(default, tuple) else several
    words = [str(one).lower() if isinstance(one, bool) else f"{one}" for one in each]
    return f" ({', '.join(words)})" if words else ""


def _blocks() -> Iterator[str]:
    yield "\n## Shipped blocks\n"
    yield "| block | takes | chooses by | description |\n|---|---|---|---|"
    for name, entry in sorted(shipped_blocks().items()):
        tree = entry.tree
        doc, choose = tree.get("doc"), tree.get("choose")
        words = [key for key in tree.entries if key not in ("doc", "takes", "choose")]
        chosen = f"`{choose.value}`: {', '.join(words)}" if choose is not None else ""
        text = _first(None if doc is None else str(doc.value))
        yield f"| `{name}` | {_takes(tree.get('takes'))} | {chosen} | {text} |"


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
        "Each column is a table of rules; x marks the ops that have a rule in it.\n\n"
        "| table | rule |\n|---|---|\n"
        "| `types` | the axes and dtypes of the results |\n"
        "| `mixes` | the axes along which positions see each other |\n"
        "| `hidden` | the values at later keys: `masked`, `zero` or `open` (anything) |\n"
        "| `to_torch`, `to_onnx` | the op in PyTorch and in ONNX |\n"
        "| `to_step` | the decoding step of an op that mixes positions; every other op is its own step |\n"
        "| `cost` | operations and bytes, for [the report](report.md) |\n"
    )
    yield f"| op | {' | '.join(TABLES)} | what it computes |\n|---|{'---|' * (len(TABLES) + 1)}"
    for kind in sorted(Op.registry):
        op = Op.registry[kind]
        marks = ("x" if kind in table.kinds() else "" for table in TABLES.values())
        yield f"| `{kind}` | {' | '.join(marks)} | {_first(inspect.getdoc(op))} |"


def _first(text: str | None) -> str:
    """Return the first paragraph on one line, as a cell of a table."""
    paragraph = inspect.cleandoc(text or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
