"""What a spec may contain: the pydantic model of the whole file, and its mistakes at their places."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, WithJsonSchema

from xformc.compiler.spec.problems import Problem, Span, suggest
from xformc.compiler.spec.sections import Decode, Section, Train
from xformc.compiler.spec.tree import Entry, Tree

NAME = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Size = Annotated[
    object, WithJsonSchema({"type": ["number", "string"], "description": "a number, or arithmetic on sizes"})
]

Group = Annotated[list[str], Field(min_length=2)]


class Input(Section):
    """An input of the model: a sequence of tokens from a vocabulary of this size."""

    tokens: Size


class Stage(Section):
    """A part of the model: a body applied to an input, or to an earlier stage."""

    from_: Annotated[str, Field(alias="from")]
    do: object
    repeat: Size = None


class Document(Section):
    """A spec of xformc."""

    model_config = ConfigDict(title="xformc spec", serialize_by_alias=True)

    extends: str | None = None
    name: Word | None = None
    task: Literal["translation"]
    sizes: dict[Name, Size] = Field(default_factory=dict)
    choices: dict[Name, Word] = Field(default_factory=dict)
    inputs: dict[Name, Input]
    blocks: dict[Name, object] = Field(default_factory=dict)
    model: Annotated[dict[Name, Stage], Field(min_length=1)]
    tie: list[Group] = Field(default_factory=list[Group])
    train: Train = Train()
    decode: Decode = Decode()


def validate(tree: Tree) -> tuple[Document | None, list[Problem]]:
    """The document, or every mistake against the schema."""
    if not isinstance(tree.value, dict):
        return None, [Problem(tree.span, f"a spec is a mapping, found {tree.described()}")]
    try:
        return Document.model_validate(tree.plain()), []
    except ValidationError as error:
        return None, [_problem(tree, item["type"], item["loc"], item["msg"]) for item in error.errors()]


def _problem(tree: Tree, kind: str, location: tuple[int | str, ...], message: str) -> Problem:
    """The problem that pydantic reports, at its place in the tree."""
    is_key = location[-1:] == ("[key]",)
    entry, missing = _locate(tree, location[:-1] if is_key else location)
    last = str(location[-1])
    if kind == "missing":
        return Problem(entry.key, f"the key '{missing or last}' is missing")
    if kind == "extra_forbidden":
        known = _fields(location[:-1])
        hint = suggest(last, known) or (f"the keys here are {', '.join(known)}" if known else None)
        return Problem(entry.key, f"unknown key '{last[:40]}'", hint)
    if is_key:
        hint = "a name has letters, digits and _, and begins with a letter"
        return Problem(entry.key, f"'{str(location[-2])[:40]}' is not a name", hint)
    if kind == "value_error":
        return Problem(entry.tree.span, f"{location[-1]} {message.removeprefix('Value error, ')}")
    if kind == "string_pattern_mismatch":
        return Problem(
            entry.tree.span, f"'{entry.tree.value!s:.40}' is not a word of letters, digits, _, - and ."
        )
    wanted = (
        message.removeprefix("Input should be ").removeprefix("a valid ").replace("dictionary", "mapping")
    )
    wanted = {
        "integer": "a whole number",
        "number": "a number",
        "string": "a word",
        "list": "a list",
        "boolean": "true or false",
        "finite number": "a finite number",
    }.get(wanted, wanted)
    wanted = "a mapping" if kind in ("model_type", "dict_type", "model_attributes_type") else wanted
    found = entry.tree.described()
    hint = (
        suggest(str(entry.tree.value), wanted.replace("'", "").split(" or "))
        if kind == "literal_error"
        else None
    )
    return Problem(entry.tree.span, f"must be {wanted}, found {found}", hint)


def _locate(tree: Tree, location: tuple[int | str, ...]) -> tuple[Entry, str | None]:
    """The deepest entry on the way to the location, and the key that is missing there, if one is."""
    entry = Entry(Span(tree.span.source, tree.span.line, tree.span.column, tree.span.end), tree)
    for step in location:
        if isinstance(step, int) and step < len(entry.tree.items):
            item = entry.tree.items[step]
            entry = Entry(item.span, item)
        elif (found := entry.tree.entries.get(str(step))) is not None:
            entry = found
        else:
            return entry, str(step)
    return entry, None


def _fields(location: tuple[int | str, ...]) -> list[str]:
    """The keys that the schema knows at this location."""
    model: Any = Document
    for step in location:
        annotation = model.model_fields[step].annotation if hasattr(model, "model_fields") else None
        arguments = getattr(annotation, "__args__", ())
        model = next(
            (
                item
                for item in (annotation, *arguments)
                if isinstance(item, type) and issubclass(item, BaseModel)
            ),
            model,
        )
    return [field.alias or name for name, field in model.model_fields.items()]
