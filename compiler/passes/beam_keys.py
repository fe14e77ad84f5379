"""A beam over fixed caches that stay where they are: each hypothesis sees the entries that its ancestors wrote.

The keys of attention are the entries of the whole beam, and a mask hides those of others. So reordering the beam moves
a table of ancestors instead of all keys and values, and attention is one matrix product for all hypotheses of a text.
"""

from dataclasses import replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.keys import ROOM, AsKeys, BeamKeys, Write
from xformc.compiler.ops.masks import Reached
from xformc.compiler.passes.step import Decoder, Lineage, rebuilt, with_beam, with_beam_axis

BEAM = Axis("beam")


def with_lineage(decoder: Decoder) -> Decoder:
    """Add an axis `beam` as `with_beam` does, to a decoder with fixed caches, which stay where they are.

    The keys that a hypothesis sees are in the order of their positions, whatever the beam index of its ancestors.

    Raises: RuleError if something but masked attention reads a cache, such as scores that all texts share.
    """
    lifting = _Lifting(decoder)
    return lifting.run() if lifting.caches else with_beam(decoder)


class _Lifting:
    """Builds the step with a beam; `caches` are the states that stay, by name."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        written = {node.inputs[0].name for node in decoder.step.nodes if isinstance(node.op, Write)}
        moved = [state.past for state in decoder.states if "batch" in state.past.type.names]
        self.caches = {value.name for value in moved if value.name in written}
        kept = {value.name: _cache_of_beam(value.type) for value in moved if value.name in self.caches}
        others = [value for value in (decoder.token, *moved) if value.name not in kept]
        lifted = {value.name: with_beam_axis(value) for value in others} | kept
        self.builder, self.values = rebuild(decoder.step, decoder.step.name, lifted)
        lineage = (Axis("batch"), BEAM, Axis(ROOM))
        self.lineage = Lineage(
            self.builder.input("step/ancestors", Type("int64", lineage)),
            self.builder.input("step/ranks", Type("int64", (BEAM,))),
            frozenset(self.caches),
        )
        self.places: Value | None = None
        self.keys: set[str] = set()

    def run(self) -> Decoder:
        """The decoder with the beam."""
        for node in self.decoder.step.nodes:
            self._copy(node)
        values, decoder = self.values, self.decoder
        step = self.builder.finish(values[value.name] for value in decoder.step.outputs)
        states = rebuilt(decoder.states, values)
        for state in states:
            if state.past.type != state.new.type:
                raise RuleError(f"{state.past.name}: {state.past.type} becomes {state.new.type} with a beam")
        token = values[decoder.token.name]
        return replace(decoder, step=step, extend=None, token=token, states=states, lineage=self.lineage)

    def _copy(self, node: Node) -> None:
        op, (ancestors, ranks) = node.op, (self.lineage.ancestors, self.lineage.ranks)
        inputs = [self.values[value.name] for value in node.inputs]
        if isinstance(op, Write):
            copy_node(self.builder, self.values, node)
        elif isinstance(op, Convolution) and self.keys.intersection(op.axes):
            raise RuleError(f"{node.outputs[0].name} is a convolution over keys, which has neighbours of others")
        elif isinstance(op, AsKeys) and op.positions == ROOM:
            self.keys.add(op.keys)
            self._emit(node, BeamKeys(BEAM.name, ROOM, op.keys), (*inputs, ranks))
        elif isinstance(op, Reached):
            self._emit(node, op, (*inputs, ancestors, ranks))
        else:
            self._emit(node, op, tuple(self._all_places(value) for value in inputs))

    def _emit(self, node: Node, op: Op, inputs: tuple[Value, ...]) -> None:
        outputs = self.builder.emit_all(op, inputs, node.outputs[0].name, node.place)
        self.values.update({old.name: new for old, new in zip(node.outputs, outputs, strict=True)})

    def _all_places(self, value: Value) -> Value:
        """The positions of the keys of the whole beam, in place of those of a cache."""
        if value != self.decoder.positions:
            return value
        if self.places is None:
            op = BeamKeys(BEAM.name, ROOM, "step/keys")
            self.places = self.builder.emit(op, (value, self.lineage.ranks), "step/places")
        return self.places


def _cache_of_beam(type: Type) -> Type:
    index = type.names.index(ROOM) + 1
    return Type(type.dtype, (*type.axes[:index], BEAM, *type.axes[index:]))
