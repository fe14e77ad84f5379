"""Searches whose values keep their shapes: every size is that of an input's axis, and none depends on data.

Such a search is a `prepare` and a `step` that may be one model, with a loop around the step, or two that a runtime
drives: docs/engine.md has their interface.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter, Turn
from xformc.compiler.ops.keys import ROOM, AsKeys
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.states import emit_states

POSITION = Type("int64")
PLACES = Type("int64", (Axis(ROOM),))

Fields = Mapping[str, Type]
"""Values by name, in order."""

Names = Mapping[str, str]
"""The ONNX names of values by their name here."""


class FixedSearch(Protocol):
    """A search in parts."""

    @property
    def inputs(self) -> Fields:
        """What a runtime gives."""
        ...

    @property
    def constants(self) -> Fields:
        """What `prepare` makes once."""
        ...

    @property
    def carried(self) -> Fields:
        """What a step makes anew, and prepare first."""
        ...

    @property
    def results(self) -> Fields:
        """Those of the carried that are the search's results at the end."""
        ...

    def prepare(self, onnx: OnnxEmitter) -> list[str]:
        """Write what comes before the first step, of the inputs by their own names: the constants, then the carried."""
        ...

    def step(self, onnx: OnnxEmitter, names: Names) -> tuple[str, list[str]]:
        """Write a step, given inputs, constants and carried: whether another one is wanted, and the new carried."""
        ...


@dataclass(frozen=True)
class FixedDecoder:
    """A decoder whose caches are fixed, and the names that its values have in a search."""

    decoder: Decoder

    @property
    def constants(self) -> dict[str, Type]:
        """The constants of the decoder but the places, which are an input."""
        places = self.decoder.positions
        values = [value for value in self.decoder.constants if places is None or value.name != places.name]
        return {f"constant_{index}": self._named(value.type) for index, value in enumerate(values)}

    @property
    def states(self) -> dict[str, Type]:
        """The states that a step carries to the next."""
        return {f"state_{index}": state.past.type for index, state in enumerate(self.decoder.states)}

    def prepare(self, onnx: OnnxEmitter, sizes: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Write `prepare` and the first states; `sizes` are vectors with the sizes of `batch`, `beam` and `room`."""
        decoder = self.decoder
        given = {value.name: value.name for value in decoder.given} | self._places()
        made = dict(zip((value.name for value in decoder.prepared), onnx.graph(decoder.prepare, given), strict=True))
        places = self._places()
        constants = [made[value.name] for value in decoder.constants if value.name not in places]
        return constants, emit_states(onnx, decoder, sizes, made)

    def step(self, onnx: OnnxEmitter, names: Names, token: str) -> tuple[str, list[str]]:
        """Write a step for these tokens: the logits, and the new states."""
        decoder, places = self.decoder, self._places()
        values = {value.name: names["places"] for value in decoder.constants if value.name in places}
        own = [value for value in decoder.constants if value.name not in places]
        values |= {value.name: names[f"constant_{index}"] for index, value in enumerate(own)}
        values |= {state.past.name: names[f"state_{index}"] for index, state in enumerate(decoder.states)}
        values |= {decoder.token.name: token, decoder.position.name: names["position"]}
        logits, *states = onnx.graph(decoder.step, values)
        return logits, states

    def _named(self, type: Type) -> Type:
        """The type with its axes called as those of the inputs: keys are positions."""
        nodes = (*self.decoder.prepare.nodes, *self.decoder.step.nodes)
        positions = {node.op.keys: node.op.positions for node in nodes if isinstance(node.op, AsKeys)}
        return Type(type.dtype, tuple(Axis(positions.get(axis.name, axis.name), axis.size) for axis in type.axes))

    def _places(self) -> dict[str, str]:
        return {} if self.decoder.positions is None else {self.decoder.positions.name: "places"}


def bind_fields(onnx: OnnxEmitter, fields: Fields, names: Names) -> None:
    """Say which ONNX values the fields are, so that their sizes can be read from them."""
    for name, type in fields.items():
        onnx.bind(Value(name, type), names[name])


def emit_whole(onnx: OnnxEmitter, search: FixedSearch) -> list[str]:
    """Write the search as one model: its results in their order. A loop carries what a step makes."""
    inputs = {name: name for name in search.inputs}
    bind_fields(onnx, search.inputs, inputs)
    values = search.prepare(onnx)
    constants = dict(zip(search.constants, values[: len(search.constants)], strict=True))
    carried = list(zip(search.carried.values(), values[len(search.constants) :], strict=True))
    types = (*search.constants.values(), *search.carried.values())
    axes = {axis.name for type in types for axis in type.axes}

    def body(scope: OnnxEmitter, _: str, entering: list[str]) -> Turn:
        names = {**inputs, **constants, **dict(zip(search.carried, entering, strict=True))}
        go_on, leaving = search.step(scope, names)
        return go_on, leaving, []

    trips = onnx.op("Squeeze", onnx.op("Shape", "places"))
    results = dict(zip(search.carried, onnx.loop(trips, carried, body, frozenset(axes)), strict=True))
    return [results[name] for name in search.results]


def written(onnx: OnnxEmitter, places: str, position: str, new: str, old: str) -> str:
    """Write values [.., room] that are `new` [.., 1] at the position, `old` elsewhere."""
    return onnx.op("Where", onnx.op("Equal", places, position), new, old)


def following(onnx: OnnxEmitter, places: str, position: str) -> str:
    """Write the next position; after the last place it stays there, for a step too many."""
    last = onnx.op("Sub", onnx.op("Squeeze", onnx.op("Shape", places)), 1)
    return onnx.op("Min", onnx.op("Add", position, 1), last)
