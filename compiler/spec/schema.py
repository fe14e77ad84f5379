"""The pydantic model of a whole spec file; reports mistakes at their places."""

import re
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, WithJsonSchema, model_validator
from pydantic_core import ErrorDetails

from xformc.compiler.results.kind import KINDS
from xformc.compiler.spec.model import InputKind
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.sections import Decode, Pattern, Section, Train
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest
from xformc.format.precision import PrecisionWord
from xformc.format.tasks import TaskName

NAME = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Size = Annotated[
    object, WithJsonSchema({"type": ["number", "string"], "description": "a number, or arithmetic on sizes"})
]

InitialValues = Annotated[
    object,
    WithJsonSchema({"type": ["number", "string", "object"], "maxProperties": 1, "description": "initial values"}),
]
Group = Annotated[list[str], Field(min_length=1)]
Form = TypeVar("Form", bound=Section)


SpecialToken = Annotated[
    object, WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "description": "an id, or none"})
]


class SpecialTokenIds(Section):
    """The ids of the special tokens in every vocabulary, or in that of one input.

    `pad` fills the positions after a text; `unknown` stands for what the vocabulary lacks; `begin` is what a decoder
    reads before the first token. A vocabulary may have `none` of these. `end` is the token that ends a text, or a list:
    the first of them ends the texts that the model is given.
    """

    pad: SpecialToken = 0
    unknown: SpecialToken = 1
    begin: SpecialToken = 2
    end: Annotated[object, WithJsonSchema({"type": ["integer", "array"], "items": {"type": "integer"}})] = 3


class Input(Section):
    """An input of the model, of one kind.

    `tokens`: token ids of a vocabulary of this size. `vectors`: any number of vectors of this size. `values`: numbers
    along these axes. `edges`: which positions of another input may attend to which. `along`, beside tokens or vectors:
    the input whose positions these have, one for each. `rate`, beside vectors: they are the consecutive samples of a
    sound, and this is the number of samples in a second. `ends`, beside tokens: whether texts have an end token.
    `special_tokens`, beside tokens: the ids that differ from those of the spec.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in get_args(InputKind)]})

    tokens: Size = None
    vectors: Size = None
    values: Annotated[object, WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}})] = None
    edges: str | None = None
    along: str | None = None
    rate: Size = None
    ends: bool = True
    special_tokens: SpecialTokenIds | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Input":
        kinds = [name for name in Input.model_fields if name not in ("along", "rate", "ends", "special_tokens")]
        found = [name for name in kinds if name in self.model_fields_set]
        if len(found) != 1:
            raise ValueError(f"needs exactly one of {', '.join(kinds)}, found {len(found)}")
        if self.along is not None and found[0] not in ("tokens", "vectors"):
            raise ValueError(f"cannot lie along another input: {found[0]} have no positions")
        if self.rate is not None and (found[0] != "vectors" or self.along is not None):
            raise ValueError("cannot have a rate: only vectors with positions of their own are samples")
        if self.special_tokens is not None and found[0] != "tokens":
            raise ValueError("cannot have 'special_tokens': only tokens have them")
        if "ends" in self.model_fields_set and (found[0] != "tokens" or self.along is not None):
            raise ValueError("cannot have 'ends': only tokens with positions of their own are texts with an end")
        return self


class Stage(Section):
    """A stage of the model: a body applied to an input or to an earlier stage."""

    from_: Annotated[str, Field(alias="from")]
    do: object
    repeat: Size = None
    index: Name | None = None
    shared: bool = False
    carry: dict[Name, str] = Field(default_factory=dict[str, str])


def _result_schema() -> dict[str, Any]:
    """The JSON schema of an entry of `results`."""
    settings = {key: value for kind in KINDS.values() for key, value in kind.settings.items()}
    types = {bool: "boolean", int: "integer", float: "number", str: "string"}
    kinds = {name: {"type": "string", "description": str(kind.__doc__).splitlines()[0]} for name, kind in KINDS.items()}
    others = {
        key: {"enum": list(value)} if isinstance(value, tuple) else {"type": types[type(value)]}
        for key, value in settings.items()
    }
    return {"type": "object", "properties": kinds | others, "additionalProperties": False, "minProperties": 1}


class Document(Section):
    """A spec of xformc."""

    model_config = ConfigDict(title="xformc spec", serialize_by_alias=True)

    extends: str | None = None
    import_: Annotated[list[str], Field(alias="import", default_factory=list[str])]
    name: Word | None = None
    task: TaskName | None = None
    sizes: dict[Name, Size] = Field(default_factory=dict)
    choices: dict[Name, Word] = Field(default_factory=dict)
    defaults: dict[Name, dict[Name, object]] = Field(default_factory=dict[Name, dict[Name, object]])
    inputs: dict[Name, Input]
    special_tokens: SpecialTokenIds = SpecialTokenIds()
    results: Annotated[dict[Name, object], Field(json_schema_extra={"additionalProperties": _result_schema()})] = Field(
        default_factory=dict
    )
    blocks: dict[Name, object] = Field(default_factory=dict)
    model: Annotated[dict[Name, Stage], Field(min_length=1)]
    tie: list[Group] = Field(default_factory=list[Group])
    train: Train = Train()
    decode: Decode = Decode()
    initial: dict[Pattern, InitialValues] = Field(default_factory=dict[Pattern, InitialValues])
    precision: dict[Pattern, PrecisionWord] = Field(default_factory=dict)


def validate(tree: Tree, form: type[Form]) -> tuple[Form | None, list[Problem]]:
    """The document, or every mistake against the schema, which is that of `form`."""
    if not isinstance(tree.value, dict):
        return None, [Problem(tree.span, f"a spec must be a mapping, found {tree.described()}")]
    try:
        return form.model_validate(tree.plain()), []
    except ValidationError as error:
        return None, [_problem(tree, item) for item in error.errors()]


_KEYS = {
    "": ("a name", "a name has letters, digits and _, and begins with a letter"),
    "precision": ("a path", "a path is names with / between them; * is any one name, ** any number of names"),
    "initial": ("a path", "a path is names with / between them; * is any one name, ** any number of names"),
}
"""What a section's keys must be, and a hint that describes their form."""

_WANTED = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a word",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "too_short": "needs at least {min_length} entries",
    "string_pattern_mismatch": "must be a word of letters, digits, _, - and .",
}
"""Messages by the kind of pydantic's error; other kinds keep pydantic's message."""


def _problem(tree: Tree, error: ErrorDetails) -> Problem:
    """Turn an error of pydantic's into a problem at its place in the tree."""
    kind, location = error["type"], error["loc"]
    if location[-1] == "[key]" and kind != "extra_forbidden":
        what, hint = _KEYS.get(str(location[0]), _KEYS[""])
        return Problem(_entry(tree, location[:-1]).key, f"'{location[-2]!s:.40}' is not {what}", hint)
    entry, last = _entry(tree, location), str(location[-1])
    if kind == "missing":
        return Problem(_entry(tree, location[:-1]).key, f"the key '{last}' is missing")
    if kind == "extra_forbidden":
        known = _fields(location[:-1])
        return Problem(entry.key, f"unknown key '{last[:40]}'", suggest(last, known) or f"the keys: {', '.join(known)}")
    if kind == "value_error":
        return Problem(entry.tree.span, f"{last} {error['msg'].removeprefix('Value error, ')}")
    context = error.get("ctx", {})
    found = context.get("actual_length", entry.tree.described())
    wanted = _WANTED.get(kind, error["msg"].replace("Input should", "must")).format_map(context)
    words = re.findall("'(.*?)'", str(context.get("expected", "")))
    return Problem(entry.tree.span, f"{wanted}, found {found}", suggest(str(entry.tree.value), words))


def _entry(tree: Tree, location: tuple[int | str, ...]) -> Entry:
    """The deepest existing entry on the path to the location."""
    entry = Entry(tree.span, tree)
    for step in location:
        if isinstance(step, int):
            item = entry.tree.items[step]
            entry = Entry(item.span, item)
        else:
            entry = entry.tree.entries.get(step, entry)
    return entry


def _fields(location: tuple[int | str, ...]) -> list[str]:
    """The keys that the schema knows at this location."""
    model: type[BaseModel] = Document
    for step in location:
        known = model.model_fields.get(str(step))
        annotation = None if known is None else known.annotation
        inside = (annotation, *get_args(annotation))
        model = next((item for item in inside if isinstance(item, type) and issubclass(item, BaseModel)), model)
    return [item.alias or name for name, item in model.model_fields.items()]
