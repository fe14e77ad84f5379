"""Keys and values in float16 on GPUs, where the matrix products that made them are rounded to float16."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Node, Value
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.keys import ROOM, AsKeys, BeamKeys, Write
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.native import Narrow
from xformc.compiler.passes.makers import PrecisionOf, maker
from xformc.compiler.passes.step import Decoder, rebuilt
from xformc.compiler.quantize.formats import FORMATS
from xformc.format.targets import Traits


def narrow_attention(decoder: Decoder, precision_of: PrecisionOf, traits: Traits) -> Decoder:
    """Store in float16 what only attention reads as keys or values, in fixed caches and of the source, if it comes from
    products that a target with these traits rounds to float16. Keys in bfloat16 have a larger range, and stay whole.
    """
    step, prepare = decoder.step, decoder.prepare
    named = {value.name for value in (*decoder.heads, *decoder.initial)}
    constants_made = zip(decoder.constants, prepare.outputs, strict=False)
    made = {value.name: found for value, found in constants_made if value.name not in named}
    readers = defaultdict[str, list[tuple[Node, int]]](list)
    for node in step.nodes:
        for index, value in enumerate(node.inputs):
            readers[value.name].append((node, index))

    def attended(value: Value) -> bool:
        """Whether only attention reads a value, as keys or values."""
        found = readers[value.name]
        return bool(found) and all(isinstance(node.op, Attention) and index in (1, 2) for node, index in found)

    def rounded(value: Value, producers: Mapping[str, Node]) -> Narrow | None:
        """How a value becomes float16, if the product that it comes from is rounded to it."""
        if maker(value, producers, precision_of) != "float16" or not FORMATS["float16"].rounds(traits):
            return None
        node = producers[value.name]
        while isinstance(node.op, Align):
            node = producers[node.inputs[0].name]
        return Narrow(larger=not isinstance(node.op, Linear))

    constants, caches = dict[str, Narrow](), dict[str, tuple[Node, Narrow]]()
    once, each = prepare.producers(), step.producers()
    for value in decoder.constants:
        small = rounded(made[value.name], once) if value.name in made and attended(value) else None
        if small is not None:
            constants[value.name] = small
    for node in step.nodes:
        keys = [reader for reader, _ in readers[node.outputs[0].name]]
        read = bool(keys) and all(_as_keys(one) and attended(one.outputs[0]) for one in keys)
        small = rounded(node.inputs[1], each) if isinstance(node.op, Write) and read else None
        if small is not None:
            caches[node.inputs[0].name] = (node, small)
    return _stored(decoder, constants, caches)


def _as_keys(node: Node) -> bool:
    return isinstance(node.op, BeamKeys) or (isinstance(node.op, AsKeys) and node.op.positions == ROOM)


def _stored(decoder: Decoder, constants: Mapping[str, Narrow], caches: Mapping[str, tuple[Node, Narrow]]) -> Decoder:
    """The decoder with these constants, and caches with the nodes that write them, in float16."""
    step, values = decoder.step, {value.name: value for value in decoder.step.inputs}
    lowered = {name: Type("float16", values[name].type.axes) for name in (*constants, *caches)}
    builder, values = rebuild(step, step.name, lowered)
    writes = {write.outputs[0].name: narrow for write, narrow in caches.values()}
    for node in step.nodes:
        if node.outputs[0].name in writes:
            cache, new, *place = (values[value.name] for value in node.inputs)
            small = builder.emit(writes[node.outputs[0].name], (new,), f"{new.name}/narrow", node.place)
            values[node.outputs[0].name] = builder.emit(
                node.op, (cache, small, *place), node.outputs[0].name, node.place
            )
        else:
            copy_node(builder, values, node)
    prepare, made = rebuild(decoder.prepare, decoder.prepare.name, {})
    for node in decoder.prepare.nodes:
        copy_node(prepare, made, node)
    outputs = [made[value.name] for value in decoder.prepare.outputs]
    for index, value in enumerate(decoder.constants):
        if value.name in constants:
            outputs[index] = prepare.emit(constants[value.name], (outputs[index],), f"{outputs[index].name}/narrow")
    return replace(
        decoder,
        prepare=prepare.finish(outputs),
        step=builder.finish(values[value.name] for value in step.outputs),
        constants=tuple(values[value.name] for value in decoder.constants),
        states=rebuilt(decoder.states, values),
    )
