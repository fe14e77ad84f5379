"""The content of a spec's picture: boxes, groups of boxes, and sums, each with its input and result values.

They are made from the frames of the spec, down to a given depth. Blocks that only wrap another block are left out, and
so is dropout, which is not part of the function that the model computes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from xformc.compiler.explain.picture.captions import factor, kind_of, pretty
from xformc.compiler.explain.picture.items import Box, Group, Item, Outline, Sum, boxes
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.spec import Spec
from xformc.compiler.spec.frames import Frame

_UNSEEN = frozenset({"padding_mask", "positions"})
"""Ops that read the shape or the padding of a value, not its content."""


def outline(spec: Spec, depth: int) -> Outline:
    """The outline of a spec, `depth` levels deep: 1 shows the steps of each stage, 2 their contents, ...

    Raises: SpecError, as `Spec.graph` does.
    """
    graph = spec.graph()
    sketch = _Sketch(graph)
    stages = tuple(sketch.group(frame, depth, pretty(frame.name), None) for frame in spec.frames())
    counts: dict[str, int] = {}
    for box in (box for stage in stages for box in boxes(stage)):
        for name in box.parameters:
            counts[name] = counts.get(name, 0) + 1
    tied = {one.name: one.type for one in graph.parameters if counts.get(one.name, 0) > 1}
    return Outline(graph.inputs, stages, tied, sketch.types, frozenset(sketch.states))


@dataclass
class _Sketch:
    """Turns frames into items. `same` maps each value that is left out to the value that represents it."""

    graph: Graph
    same: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.producers: dict[str, Node] = {}
        self.types: dict[str, Type] = {}
        self.states = set[str]()
        self.parameters = {parameter.name for parameter in self.graph.parameters}
        self._enter(self.graph)
        self.visible = self.states | {value.name for value in self.graph.inputs if not value.name.endswith("_mask")}

    def _enter(self, graph: Graph) -> None:
        """Register the nodes of a graph and of its cells; inputs of cells are represented by their arguments."""
        self.producers |= graph.producers()
        values = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
        self.types |= {value.name: value.type for value in values}
        for node in graph.nodes:
            if not isinstance(node.op, Recurrence):
                continue
            inner = [value.name for value in node.op.body.inputs]
            first, last = node.op.sequences, node.op.sequences + node.op.states
            outer = [value.name for value in node.inputs]
            given = [
                *zip(inner[:first], outer, strict=False),
                *zip(inner[last:], outer[first + node.op.started :], strict=True),
            ]
            self.same.update(given)
            if node.op.started:
                self.same[inner[first]] = self._origin(outer[first])
            self.states |= set(inner[first:last])
            self._enter(node.op.body)

    def _origin(self, name: str) -> str:
        """The value that this one is a rearrangement of."""
        while name in self.producers and self.producers[name].op.kind in ("align", "expand"):
            name = self.producers[name].inputs[0].name
        return name

    def group(self, frame: Frame, depth: int, label: str, times: int | None) -> Group:
        items = self.inside(frame, depth)
        return Group(label, times, self.name(frame.x), items, self.inputs(frame), self.value(frame.result))

    def inside(self, frame: Frame, depth: int) -> tuple[Item, ...]:
        return tuple(_with_norms(self.within(frame, depth)))

    def within(self, frame: Frame, depth: int) -> list[Item]:
        """The items of the steps in a frame; of a repeat, those of its first iteration."""
        shown = frame.children[0] if frame.kind == "repeat" and frame.children else frame
        return [item for child in shown.children for item in self.items(child, depth)]

    def items(self, frame: Frame, depth: int) -> list[Item]:
        """The items of a frame: none, the frame itself, or its contents."""
        if frame.name == "dropout" or not frame.made:
            self.same[frame.result.name] = frame.x.name
            return []
        self.visible.add(frame.result.name)
        found = [item for item in self._items(frame, depth) if not isinstance(item, Group) or item.items]
        if not found:
            self.same[frame.result.name] = frame.x.name
        return found

    def _items(self, frame: Frame, depth: int) -> list[Item]:
        if frame.kind == "repeat":
            return [self.group(frame, depth - 1, "", frame.times) if depth > 1 else self.repeated(frame)]
        if frame.kind == "primitive":
            return [self.primitive(frame, depth)]
        if frame.given:
            return self.within(frame, depth)
        inner = [child for child in frame.children if child.made and child.name != "dropout"]
        if len(inner) == 1:
            return self.single(frame, inner[0], depth)
        return [self.group(frame, depth - 1, pretty(frame.name), None) if depth > 1 else self.box(frame)]

    def primitive(self, frame: Frame, depth: int) -> Item:
        if frame.name in ("residual", "add"):
            return self.sum(frame, depth)
        if frame.children and depth > 2:
            return self.group(frame, depth - 1, pretty(frame.name), None)
        return self.box(frame)

    def single(self, frame: Frame, inner: Frame, depth: int) -> list[Item]:
        """A block that only calls another keeps its own name; one that only calls a primitive takes the primitive's."""
        named = replace(inner, step=frame.step or inner.step, result=frame.result)
        if inner.name in ("residual", "add") and not self.sum(inner, depth).beside:
            return [self.group(frame, depth - 1, pretty(frame.name), None) if depth > 1 else self.box(frame)]
        if inner.name in ("residual", "add") or inner.given == (inner.kind == "block"):
            return self.items(named, depth)
        return self.items(replace(named, name=frame.name, numbers=frame.numbers or inner.numbers), depth)

    def sum(self, frame: Frame, depth: int) -> Sum:
        items = self.inside(frame, depth)
        x = self.name(frame.x)
        beside = all(x not in item.inputs for item in items)
        return Sum(x, items, "", beside, self.inputs(frame), frame.result)

    def repeated(self, frame: Frame) -> Box:
        found = [box for item in self.inside(frame, 1) for box in boxes(item) if box.kind != "norm"]
        words = ", ".join(dict.fromkeys(box.label.lower() for box in found))
        return replace(self.box(frame), label=f"{frame.times}\N{MULTIPLICATION SIGN} Layer", note=words)

    def box(self, frame: Frame) -> Box:
        nodes = self.nodes(frame)
        parameters = frozenset(value.name for node in nodes for value in node.inputs) & self.parameters
        label = factor(frame.written) if frame.name == "scale" else pretty(frame.name)
        note = "" if frame.step in (None, frame.name) else str(frame.step).replace("_", " ")
        inputs = self.inputs(frame)
        numbers = "" if frame.numbers == f"factor={frame.written}" else frame.numbers  # the label of a scale has it
        note = note or ", ".join(text for text in (numbers, self.inner_axes(frame, nodes)) if text)
        return Box(label, note, kind_of(nodes), inputs, frame.result, parameters)

    def inner_axes(self, frame: Frame, nodes: list[Node]) -> str:
        """The axes that exist only inside a block: `d_ff=2048`, or `d_k=d_v=64` for adjacent axes of the same size."""
        outside = {axis for value in (frame.x, frame.result) for axis in value.type.axes}
        inside = [
            axis for node in nodes for axis in node.outputs[0].type.axes if axis not in outside and (axis.size or 0) > 1
        ]
        inside = [axis for axis in inside if not axis.name.endswith("_keys")]
        parts: list[str] = []
        for size, axes in groupby(dict.fromkeys(inside), key=lambda axis: axis.size):
            parts.append("=".join([*(axis.name for axis in axes), str(size)]))
        return ", ".join(parts)

    def nodes(self, frame: Frame) -> list[Node]:
        return [self.producers[name] for name in frame.made if name in self.producers]

    def inputs(self, frame: Frame) -> tuple[str, ...]:
        """The values outside a frame that its nodes use."""
        made = set(frame.made)
        cells = [node.op.body for node in self.nodes(frame) if isinstance(node.op, Recurrence)]
        made |= {value.name for cell in cells for value in cell.inputs if value.name in self.states}
        read = [value.name for node in self.nodes(frame) if node.op.kind not in _UNSEEN for value in node.inputs]
        outside = [name for name in read if name not in made and name not in self.parameters]
        seen = dict.fromkeys(self.name(name) for name in outside if self.seen(name))
        return tuple(name for name in seen if name not in made)

    def value(self, value: Value) -> Value:
        return Value(self.name(value), value.type)

    def seen(self, name: str) -> bool:
        return self.name(name) in self.visible

    def name(self, value: Value | str) -> str:
        """The value that represents this one."""
        name = value if isinstance(value, str) else value.name
        while name in self.same and self.same[name] != name:
            name = self.same[name]
        return name


def _with_norms(items: list[Item]) -> Iterator[Item]:
    """Merge each sum with the norm that follows it."""
    waiting: Sum | None = None
    for item in items:
        if waiting is not None and isinstance(item, Box) and item.kind == "norm" and not waiting.beside:
            yield replace(waiting, norm="Norm", result=item.result)
            waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = item if isinstance(item, Sum) else None
        if waiting is None:
            yield item
    if waiting is not None:
        yield waiting
