"""The JSON schema of a spec, for completion and checks in editors; the compiler itself checks more."""

from collections.abc import Mapping

from xformc.compiler.graph.primitives import PRIMITIVES, Kind
from xformc.compiler.spec.load import shipped_blocks
from xformc.compiler.spec.schema import NAME, Document
from xformc.compiler.spec.signature import TAKEN_KINDS, Signature, signature_of, signature_of_primitive
from xformc.compiler.spec.tree import Plain

Schema = dict[str, Plain]

_NUMBER: Schema = {"type": ["number", "string"]}
_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "description": "the name of this step of a list"}
_CHOICE: Schema = {
    "type": "string",
    "description": "a choice, or arithmetic; each of its words or numbers is another key with a body",
}
_SIZE: Schema = {"type": ["string", "object"], "description": "the name of a size; {name: number} is another size"}
_KINDS: dict[Kind, Schema] = {
    "block": {"$ref": "#/$defs/argument"},
    "value": {"type": "string", "description": "the name of a value"},
    "operand": {**_NUMBER, "description": "the name of a value, or a number, or arithmetic on sizes"},
    "flag": {"type": ["boolean", "string"]},
    "number": {**_NUMBER, "description": "a number, or arithmetic on sizes"},
    "numbers": {"type": ["number", "string", "array"], "description": "a number, or a list of numbers"},
    "word": _TEXT,
    "initial": {"type": ["number", "string", "object"], "maxProperties": 1, "description": "initial values"},
    "states": {"type": ["object", "string"], "description": "names of states, each with its axis or axes"},
    "name": {"type": "string", "description": "an axis of the value, or positions, or keys"},
    "names": {"type": ["string", "array"], "items": _TEXT, "description": "an axis of the value, or several"},
    "axis": _SIZE,
    "axes": {"type": ["string", "object", "array"], "items": _SIZE, "description": "the name of a size, or several"},
}

_ALONE: dict[Kind, Schema] = {"axis": _TEXT, "axes": {"type": ["string", "array"], "items": _SIZE}}
"""The kinds that may be no mapping where they are the only argument."""


def json_schema() -> Schema:
    """The JSON schema (draft 2020-12) of a spec."""
    schema: Schema = Document.model_json_schema()
    required = schema.pop("required")
    schema["anyOf"] = [{"required": ["extends"]}, {"required": required}]
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    definitions.update(_bodies())
    del _at(definitions, "Stage")["required"]  # the spec that is extended has the rest of the stage
    _at(definitions, "Stage", "properties")["do"] = {"$ref": "#/$defs/body"}
    _at(schema, "properties", "blocks", "patternProperties")[NAME] = {"$ref": "#/$defs/block"}
    for section in ("sizes", "choices", "inputs", "blocks", "model"):
        _at(schema, "properties", section)["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _bodies() -> Schema:
    """The schema's definitions of `body`, `step`, `argument` and `block`, with all primitives and shipped blocks."""
    signatures = {name: (signature_of_primitive(item), item.doc) for name, item in PRIMITIVES.items()}
    for name, entry in shipped_blocks().items():
        doc = entry.tree.get("doc")
        signatures[name] = (signature_of(entry.tree, []), str(doc.value) if doc else "")
    step: Schema = {"$ref": "#/$defs/step"}
    names: Schema = {"anyOf": [{"enum": list(signatures)}, _TEXT]}
    calls: Schema = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 2,
        "not": {"anyOf": [{"required": [key]} for key in ("do", "repeat", "choose")]},
        "properties": {"name": _NAME, **{name: _call(item, doc) for name, (item, doc) in signatures.items()}},
    }
    steps: Schema = {"type": "array", "items": step}
    return {
        "step": {"anyOf": [names, _inline(), _choose(), calls]},
        "argument": {"anyOf": [step, steps]},
        "body": {"anyOf": [names, steps, {"type": "object", "additionalProperties": {"anyOf": [step, steps]}}]},
        "block": _block(),
    }


def _inline() -> Schema:
    return _object(
        {
            "name": _NAME,
            "from": _KINDS["value"],
            "repeat": _KINDS["number"],
            "index": {"type": "string", "description": "the name of the turn's number, from 0"},
            "shared": {"type": "boolean", "description": "the turns have the same weights"},
            "carry": {"type": "object", "additionalProperties": _KINDS["value"]},
            "do": {"$ref": "#/$defs/body"},
        },
        ["do"],
    )


def _choose() -> Schema:
    return {
        "type": "object",
        "required": ["choose"],
        "properties": {"name": _NAME, "from": _KINDS["value"], "choose": _CHOICE},
        "additionalProperties": {"$ref": "#/$defs/body"},
    }


def _call(signature: Signature, doc: str) -> Schema:
    kinds = {name: _KINDS[parameter.kind] for name, parameter in signature.parameters.items()}
    named = _object({"from": _KINDS["value"], **kinds}, [])
    alone = [_ALONE.get(item.kind, _KINDS[item.kind]) for item in list(signature.parameters.values())[:1]]
    return {"description": doc, "anyOf": [*alone, named]}


def _block() -> Schema:
    kind: Schema = {"enum": list(TAKEN_KINDS)}
    default: Schema = {"type": "object", "maxProperties": 1, "propertyNames": kind}
    takes: Schema = {"anyOf": [kind, default, {"type": ["boolean", "number"]}]}
    properties: Schema = {
        "doc": _TEXT,
        "takes": {"type": "object", "additionalProperties": takes},
        "choose": _CHOICE,
        "do": {"$ref": "#/$defs/body"},
    }
    either: Plain = [{"required": ["do"]}, {"required": ["choose"]}]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": {"$ref": "#/$defs/body"},
        "oneOf": either,
    }


def _object(properties: Mapping[str, Plain], required: list[Plain]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def _at(schema: Schema, *keys: str) -> Schema:
    for key in keys:
        inner = schema[key]
        assert isinstance(inner, dict)
        schema = inner
    return schema
