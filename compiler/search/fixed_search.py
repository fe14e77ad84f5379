"""Searches with fixed shapes: every size is the size of an input's axis, and none depends on data.

Such a search consists of `prepare` and `step`: one model with a loop around the step, or two models that a runtime
drives (docs/engine.md has their interface).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter, Turn
from xformc.compiler.ops.keys import AsKeys, Write
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.decoder_step import emit_prepare, emit_states, emit_step
from xformc.compiler.search.loops import Fields, Names, Record, bind_fields, fields_of, record_of
from xformc.format.interfaces import RESULTS
from xformc.format.names import CACHE


@dataclass(frozen=True)
class FixedSearch:
    """A search in parts: `prepare` turns the `inputs` into the `constants` and the initial `carried` values; each step
    updates the carried values.

    `prepare` writes the part before the first step, with the inputs under their own names; it returns the constants and
    carried values, and the decoder's heads. `step` writes a step from inputs, constants and carried values; it returns
    whether to continue, and the new carried values.
    """

    inputs: Fields
    constants: Fields
    carried: Fields
    prepare: Callable[[OnnxEmitter], tuple[Names, Names]]
    step: Callable[[OnnxEmitter, Names], tuple[str, Names]]

    @property
    def results(self) -> Fields:
        """The types of the results, which are carried values."""
        return {name: self.carried[name] for name in RESULTS}


@dataclass(frozen=True)
class FixedDecoder:
    """A decoder with fixed caches, and the names of its values in a search.

    Constants are `constant_0`, `constant_1`, ..; states are `0`, `1`, .. in the field `state` of a record, and fixed
    caches in its field `cache`.
    """

    decoder: Decoder

    @property
    def constants(self) -> dict[str, Type]:
        """The types of the constants, without the positions, which are an input."""
        return {name: self._named(value.type) for name, value in self._constants().items()}

    @property
    def states(self) -> dict[str, Fields]:
        """The types of the states by field, `state` and `cache`."""
        return {field: {name: value.type for name, value in values.items()} for field, values in self._states().items()}

    def prepare(
        self, onnx: OnnxEmitter, places: str, sizes: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, Names], Names]:
        """Write `prepare`; return the constants, the initial states by field, and the heads.

        Its inputs have their own names, except the positions; `sizes` has the sizes of `batch`, `beam` and `room` as
        vectors.
        """
        given = {value.name: value.name for value in self.decoder.given} | self._given(places)
        made = emit_prepare(onnx, self.decoder, given)
        # The first position is 0, but no optimizer knows: it would make caches of zeros constants of the host, which
        # are copied to the device in each call.
        zero = onnx.op("Squeeze", onnx.op("Slice", places, [0], [1]), [0])
        states = emit_states(onnx, self.decoder, sizes, made, zero)
        constants = {name: made[value.name] for name, value in self._constants().items()}
        heads = {value.name: made[value.name] for value in self.decoder.heads}
        return constants, self._by_field(states), heads

    @property
    def given(self) -> dict[str, Type]:
        """The types of the inputs that a call gives."""
        return {value.name: value.type for value in self.decoder.given}

    def step(
        self, onnx: OnnxEmitter, names: Names, token: str, position: str, places: str, states: Mapping[str, Names]
    ) -> tuple[str, dict[str, Names]]:
        """Write a step for these tokens; return the logits and the new states by field.

        `names` includes the constants, and the inputs of the decoder's lineage under their names there.
        """
        known = {value.name: names[name] for name, value in self._constants().items()} | self._given(places)
        known |= {
            value.name: states[field][name]
            for field, values in self._states().items()
            for name, value in values.items()
        }
        if (lineage := self.decoder.lineage) is not None:
            known |= {value.name: names[value.name] for value in (lineage.ancestors, lineage.ranks)}
        logits, new = emit_step(onnx, self.decoder, token, position, known)
        return logits, self._by_field(new)

    def _by_field(self, states: Names) -> dict[str, Names]:
        return {
            field: {name: states[value.name] for name, value in values.items()}
            for field, values in self._states().items()
        }

    def _constants(self) -> dict[str, Value]:
        values = (value for value in self.decoder.constants if value != self.decoder.positions)
        return {f"constant_{index}": value for index, value in enumerate(values)}

    def _states(self) -> dict[str, dict[str, Value]]:
        fields: dict[str, dict[str, Value]] = {"state": {}, CACHE: {}}
        for state in self.decoder.states:
            values = fields[CACHE if state.past.name in self._caches() else "state"]
            values[str(len(values))] = state.past
        return fields

    def _caches(self) -> frozenset[str]:
        """The states whose entries stay where they are."""
        if self.decoder.lineage is not None:
            return self.decoder.lineage.caches
        if "beam" in self.decoder.token.type.names:
            return frozenset()
        return frozenset(node.inputs[0].name for node in self.decoder.step.nodes if isinstance(node.op, Write))

    def _named(self, type: Type) -> Type:
        """The type with the axis names of the inputs: keys are named after their positions."""
        nodes = (*self.decoder.prepare.nodes, *self.decoder.step.nodes)
        positions = {node.op.keys: node.op.positions for node in nodes if isinstance(node.op, AsKeys)}
        return Type(type.dtype, tuple(Axis(positions.get(axis.name, axis.name), axis.size) for axis in type.axes))

    def _given(self, places: str) -> dict[str, str]:
        return {} if self.decoder.positions is None else {self.decoder.positions.name: places}


R = TypeVar("R", bound=Record)


def inputs_of(kind: type[R]) -> R:
    """The record of the model's inputs, which are named as its fields."""
    return record_of(kind, {name: name for name in fields_of(kind)})


def emit_whole(onnx: OnnxEmitter, search: FixedSearch) -> tuple[Names, Names]:
    """Write the search as one model with a loop around the step; return its results and the decoder's heads."""
    inputs = {name: name for name in search.inputs}
    bind_fields(onnx, search.inputs, inputs)
    made, heads = search.prepare(onnx)
    carried = [(type, made[name]) for name, type in search.carried.items()]
    axes = {axis.name for type in (*search.constants.values(), *search.carried.values()) for axis in type.axes}

    def body(scope: OnnxEmitter, _: str, entering: list[str]) -> Turn:
        go_on, leaving = search.step(scope, {**inputs, **made, **dict(zip(search.carried, entering, strict=True))})
        return go_on, [leaving[name] for name in search.carried], []

    trips = onnx.op("Squeeze", onnx.op("Shape", "places"))
    results = dict(zip(search.carried, onnx.loop(trips, carried, body, frozenset(axes)), strict=True))
    return {name: results[name] for name in search.results}, heads


def written(onnx: OnnxEmitter, places: str, position: str, new: str, old: str) -> str:
    """Write values [.., room] that are `new` [.., 1] at the position, `old` elsewhere."""
    return onnx.op("Where", onnx.op("Equal", places, position), new, old)


def following(onnx: OnnxEmitter, places: str, position: str) -> str:
    """Write the next position; it stays at the last one, for surplus steps."""
    last = onnx.op("Sub", onnx.op("Squeeze", onnx.op("Shape", places)), 1)
    return onnx.op("Min", onnx.op("Add", position, 1), last)
