"""The text form of a graph, and its parser: `parse(format(graph))` is the graph."""

import dataclasses
import json
import re
from typing import Any, cast

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Graph, Initial, Node, Op, Parameter, Value

_TYPE = re.compile(r"(float32|float16|int64|int32|int8|bool)\[([^\]]*)\]$")
_NODE = re.compile(
    r"(?P<outputs>[^=]+) = (?P<kind>\w+)(?P<fields>\{.*\})?\((?P<inputs>[^()]*)\)(?: at (?P<place>\S.*))?$"
)
_PARAMETER = re.compile(r"(?P<word>\w+) (?P<name>\S+): (?P<type>\S.*\]) (?P<kind>\w+)\((?P<value>[^)]+)\)$")


_KIND = "kind"
"""The key of the kind of an op that is an attribute of another one."""


class TextError(Exception):
    """A line is not part of a graph's text form."""


def format(graph: Graph) -> str:
    """The text of a graph: one line for its name and for each input, parameter and node, and one for its outputs."""
    lines = [f"graph {graph.name}"]
    lines += [f"input {_declare(value)}" for value in graph.inputs]
    lines += [
        f"{_word(parameter)} {_declare(parameter.value)} {_format_initial(parameter.initial)}"
        for parameter in graph.parameters
    ]
    lines += [_format_node(node) for node in graph.nodes]
    lines.append(f"output {', '.join(value.name for value in graph.outputs)}")
    return "\n".join(lines) + "\n"


def parse(text: str) -> Graph:
    """Parse the text of a graph. Raises: TextError with the line number."""
    name, inputs, parameters, nodes = "", list[Value](), list[Parameter](), list[Node]()
    values: dict[str, Value] = {}
    outputs: tuple[Value, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            word, _, rest = line.partition(" ")
            if word == "graph":
                name = rest
            elif word == "input":
                inputs.append(_parse_declared(rest, values))
            elif word in ("parameter", "constant"):
                parameters.append(_parse_parameter(line, values))
            elif word == "output":
                outputs = tuple(values[item] for item in rest.split(", ") if item)
            else:
                nodes.append(_parse_node(line, values))
        except (KeyError, ValueError, TypeError) as error:
            raise TextError(f"line {number}: {line!r}: {error}") from error
    return Graph(name, tuple(inputs), tuple(parameters), tuple(nodes), outputs)


def _format_initial(initial: Initial) -> str:
    rows = f", {initial.rows}" if initial.rows else ""
    return f"{initial.kind}({initial.value!r}{rows})"


def _word(parameter: Parameter) -> str:
    return "parameter" if parameter.trained else "constant"


def _declare(value: Value) -> str:
    return f"{value.name}: {value.type}"


def _format_node(node: Node) -> str:
    fields = _fields(node.op)
    attributes = json.dumps(fields, default=_plain) if fields else ""
    outputs = "; ".join(_declare(value) for value in node.outputs).replace("=", ":")
    place = f" at {node.place}" if node.place else ""
    inputs = ", ".join(value.name for value in node.inputs)
    return f"{outputs} = {node.op.kind}{attributes}({inputs}){place}"


def _fields(op: Op) -> dict[str, Any]:
    return {item.name: getattr(op, item.name) for item in dataclasses.fields(op)}


def _plain(item: Graph | Op) -> Any:
    """A graph or another op in an op, as JSON."""
    return format(item) if isinstance(item, Graph) else {_KIND: item.kind, **_fields(item)}


def _parse_declared(text: str, values: dict[str, Value]) -> Value:
    name, _, kind = text.partition(": ")
    value = Value(name, _parse_type(kind))
    values[name] = value
    return value


def _parse_parameter(line: str, values: dict[str, Value]) -> Parameter:
    match = _PARAMETER.match(line)
    if match is None:
        raise ValueError("not a parameter")
    value = _parse_declared(f"{match['name']}: {match['type']}", values)
    kind = match["kind"]
    if kind not in ("constant", "normal", "uniform", "identity", "orthogonal"):
        raise ValueError(f"unknown initial {kind}")
    number, _, rows = match["value"].partition(", ")
    return Parameter(value, Initial(kind, float(number), int(rows or 0)), match["word"] == "parameter")


def _parse_node(line: str, values: dict[str, Value]) -> Node:
    match = _NODE.match(line)
    if match is None:
        raise ValueError("not a node")
    inputs = tuple(values[item] for item in match["inputs"].split(", ") if item)
    op = _op(match["kind"], json.loads(match["fields"] or "{}"))
    outputs = tuple(_parse_declared(item, values) for item in match["outputs"].strip().split("; "))
    return Node(op, inputs, outputs, match["place"])


def _op(kind: str, fields: dict[str, Any]) -> Op:
    return Op.registry[kind](**{key: _frozen(item) for key, item in fields.items()})


def _frozen(item: Any) -> Any:
    if isinstance(item, str) and item.startswith("graph "):
        return parse(item)
    if isinstance(item, dict):
        fields = cast(dict[str, Any], item)
        return _op(fields.pop(_KIND), fields)
    return tuple(cast(list[Any], item)) if isinstance(item, list) else item


def _parse_type(text: str) -> Type:
    match = _TYPE.match(text)
    if match is None:
        raise ValueError(f"not a type: {text}")
    dtype: DType = match[1]  # pyright: ignore[reportAssignmentType] (the expression lists the dtypes)
    axes = tuple(_parse_axis(item) for item in match[2].split(", ") if item)
    return Type(dtype, axes)


def _parse_axis(text: str) -> Axis:
    name, separator, size = text.replace(":", "=").partition("=")
    return Axis(name, int(size) if separator else None)
