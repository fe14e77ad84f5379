"""The carried values of a loop as a record: an ordered set of fields with ONNX names and types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter

Fields = Mapping[str, Type]
"""The types of values by name, in order."""

Names = Mapping[str, str]
"""The ONNX names of values by name."""

Collected = list[tuple[Type, str]]
"""Values that a loop stacks, one per iteration, with their types."""


@dataclass(frozen=True)
class Record:
    """Base of the records. A field is an ONNX name annotated with its type (see carried.py), another record, or a
    mapping of ONNX names, for values whose number depends on the decoder.

    The values of an inner record or mapping are named `FIELD_NAME`.
    """


R = TypeVar("R", bound=Record)


def fields_of(kind: type[Record], **groups: Fields) -> dict[str, Type]:
    """The types of a record's values by name, in order; `groups` has the types of each field that is a mapping."""
    found: dict[str, Type] = {}
    for name, annotation in _annotations(kind).items():
        if get_origin(annotation) is Annotated:
            found[name] = get_args(annotation)[1]
        else:
            inner = _record(annotation)
            found |= _outer(name, groups[name] if inner is None else fields_of(inner, **groups))
    return found


def names_of(record: Record) -> dict[str, str]:
    """The ONNX names of a record's values by name, in order."""
    found: dict[str, str] = {}
    for field in fields(record):
        value: str | Record | Names = getattr(record, field.name)
        if isinstance(value, str):
            found[field.name] = value
        else:
            found |= _outer(field.name, names_of(value) if isinstance(value, Record) else value)
    return found


def record_of(kind: type[R], names: Names) -> R:
    """The inverse of `names_of`; ignores additional names."""
    values: dict[str, Any] = {}
    for name, annotation in _annotations(kind).items():
        if get_origin(annotation) is Annotated:
            values[name] = names[name]
        else:
            inner = _record(annotation)
            own = {key.removeprefix(f"{name}_"): value for key, value in names.items() if key.startswith(f"{name}_")}
            values[name] = own if inner is None else record_of(inner, own)
    return kind(**values)


def mapped(record: R, function: Callable[[str], str]) -> R:
    """The record with the function applied to each name."""
    return record_of(type(record), {name: function(value) for name, value in names_of(record).items()})


def bind_fields(onnx: OnnxEmitter, types: Fields, names: Names) -> None:
    """Bind these ONNX values, so that the sizes of their axes can be read from them."""
    for name, type in types.items():
        onnx.bind(Value(name, type), names[name])


def emit_loop(
    onnx: OnnxEmitter,
    trips: str,
    types: Fields,
    entering: R,
    body: Callable[[OnnxEmitter, str, R], tuple[str, R, Collected]],
    keeps: frozenset[str] = frozenset(),
) -> tuple[R, tuple[str, ...]]:
    """Write a loop that carries a record with these types: see `OnnxEmitter.loop`.

    `body(scope, iteration, record)` returns whether to continue, the new record and the values to collect. Returns the
    last record and the collected values.
    """
    kind, names = type(entering), names_of(entering)
    assert list(types) == list(names), f"the types of {list(types)} do not fit {list(names)}"

    def turn(scope: OnnxEmitter, iteration: str, values: list[str]) -> tuple[str, list[str], Collected]:
        go_on, leaving, collected = body(scope, iteration, record_of(kind, dict(zip(names, values, strict=True))))
        left = names_of(leaving)
        assert left.keys() == names.keys(), f"the body returned {list(left)} for {list(names)}"
        return go_on, [left[name] for name in names], collected

    results = onnx.loop(trips, list(zip(types.values(), names.values(), strict=True)), turn, keeps)
    return record_of(kind, dict(zip(names, results, strict=False))), results[len(names) :]


def some_open(onnx: OnnxEmitter, done: str) -> str:
    """Whether any of the flags [batch] is not set."""
    waiting = onnx.op("ReduceMax", onnx.op("Cast", onnx.op("Not", done), to=7), keepdims=0)
    return onnx.op("Greater", waiting, 0)


def _annotations(kind: type[Record]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _record(annotation: Any) -> type[Record] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Record) else None


V = TypeVar("V")


def _outer(field: str, values: Mapping[str, V]) -> dict[str, V]:
    return {f"{field}_{name}": value for name, value in values.items()}
