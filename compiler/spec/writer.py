"""Writes the graph of a spec: nodes with their places, parameters with their ties, masks of inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Op, Parameter, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.graph.primitives import Keys
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.comparison import Compare
from xformc.compiler.ops.concatenation import Concatenate
from xformc.compiler.ops.constants import Constant
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.elementwise import Add, Binary, Divide, Multiply
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.loss import AuxiliaryLoss
from xformc.compiler.ops.masks import PaddingMask, Select
from xformc.compiler.ops.slicing import Slice
from xformc.compiler.ops.upsampling import Stretch
from xformc.compiler.spec.dependence import needed_values, readers
from xformc.compiler.spec.model import Model
from xformc.compiler.spec.position_axes import Fewer, NameTaken, PositionAxes
from xformc.compiler.spec.problems import Problem, Span, SpecError, raise_problems
from xformc.compiler.spec.scope import Binder, Scope
from xformc.compiler.spec.syntax import Call
from xformc.compiler.spec.tasks import written_logits
from xformc.compiler.spec.ties import TiedPaths
from xformc.compiler.spec.tree import Tree
from xformc.errors import suggest

MAX_PARAMETERS = 10**11

MATCHING = (Contract, Add, Multiply, Divide, Binary, Select)
"""The ops whose result has the axes of several values."""


class Writer:
    """Builds a graph and remembers the step of the spec behind each node.

    Appends the names of the values that steps make to `made`, but not the inputs' masks, which belong to no step.
    """

    def __init__(self, name: str, model: Model, made: list[str]) -> None:
        self.inputs = model.inputs
        self.logits = written_logits(model.results, model.inputs)
        self._root = GraphBuilder(name)
        self._builder = self._root
        self._tied = TiedPaths(model.ties)
        self._left_out = model.left_out
        self._turns: set[str] = set()
        self._written: set[str] = set()
        self._patterns: dict[str, str] = {}
        self._declared: dict[str, Parameter] = {}
        self._spans: dict[str, Span] = {}
        self._stages: dict[str, Problem] = {}
        self._optional: set[str] = set()
        self.behind: dict[str, tuple[str, Op]] = {}
        """The values whose last axis came behind another by matching names, each with that axis and the op."""
        self._masks: dict[str, Value] = {}
        self.axes = PositionAxes(model.inputs, model.sizes)
        self._count = 0
        self._made = made

    def input(self, name: str) -> Value:
        """Add the graph input of this name; an input of vectors also gets a mask."""
        declared = self.inputs[name]
        value = self._root.input(name, declared.type(name))
        if declared.kind == "vectors" and declared.is_sequence:
            self._masks[name] = self._root.input(f"{name}_mask", Type("bool", value.type.axes[:2]))
        return value

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str, scope: Scope) -> Value:
        """Write a node for the last step of a scope. Raises: RuleError."""
        span = scope.user
        value = self._builder.emit(op, inputs, name, scope.place)
        self._made.append(value.name)
        behind = self._behind(op, inputs, value)
        if behind is not None and behind[0] in value.type.names:
            self.behind[value.name] = behind
        self._spans[value.name] = span
        return value

    def _behind(self, op: Op, inputs: tuple[Value, ...], value: Value) -> tuple[str, Op] | None:
        """The last axis of an operand, and the op that put the value's last axis behind it by matching names."""
        if isinstance(op, MATCHING):
            operands = [item for item in inputs if item.type.dtype == value.type.dtype and item.type.axes]
        else:
            operands = [item for item in inputs[:1] if item.type.names[-1:] == value.type.names[-1:] != ()]
        for item in operands if value.type.axes else ():
            last = item.type.axes[-1]
            if last == value.type.axes[-1]:
                return self.behind.get(item.name)
            if last in value.type.axes and last.size is not None:
                return last.name, op
        return None

    def trace(
        self, path: str, inputs: Mapping[str, Type], make: Callable[[tuple[Value, ...]], tuple[Value, ...]]
    ) -> tuple[Graph, tuple[Value, ...]]:
        """The graph that `make` writes, and the outer values that it captures as additional inputs."""
        outer, inner = self._builder, GraphBuilder(path, names=self._root.names)
        values = tuple(inner.input(f"{path}/{name}", type, renamed=True) for name, type in inputs.items())
        self._builder = inner
        results = make(values)
        self._builder = outer
        graph = inner.finish(results)
        made = {value.name for value in values} | graph.producers().keys()
        used = {value.name: value for node in graph.nodes for value in node.inputs} | {v.name: v for v in results}
        captured = tuple(value for name, value in used.items() if name not in made)
        return replace(graph, inputs=(*values, *captured)), captured

    def mask(self, axis: str, span: Span) -> Value | None:
        """The mask of an axis of positions or keys, false at padding, as one node. None if there is no padding."""
        if axis not in self._masks and axis in self.axes.keys:
            keys = self.axes.keys[axis]
            self._mask_from(axis, keys.positions, AsKeys(keys.positions, keys.name, keys.window), span)
        elif axis not in self._masks and axis in self.axes.fewer:
            part = self.axes.fewer[axis]
            self._mask_from(axis, part.of, _mask_of(axis, part), span)
        elif axis not in self._masks and axis in self.axes.longer:
            more = self.axes.longer[axis]
            self._mask_from(axis, more.of, Stretch(more.of, axis, more.times), span)
        elif axis not in self._masks and axis in self.axes.joined and self.axes.padded(axis):
            self._masks[axis] = self._joined_mask(axis, span)
        elif axis not in self._masks and axis in self.inputs and self.inputs[axis].is_sequence:
            tokens = next(value for value in self._root.inputs if value.name == axis)
            self._masks[axis] = self._at_root(PaddingMask(self._padding(axis, span)), (tokens,), f"{axis}/mask", span)
        return self._masks.get(axis)

    def _padding(self, axis: str, span: Span) -> int:
        """The padding token of an input. Raises: SpecError if its vocabulary has none."""
        pad = self.inputs[axis].special.pad
        if pad is None:
            message = f"this needs to know where '{axis}' ends, and its vocabulary has no padding"
            raise SpecError.at(span, message, "give special_tokens a 'pad'")
        return pad

    def _mask_from(self, axis: str, other: str, op: Op, span: Span) -> None:
        """Make the mask of an axis from that of another."""
        real = self.mask(other, span)
        if real is not None:
            self._masks[axis] = self._at_root(op, (real,), f"{axis}/mask", span)

    def _joined_mask(self, axis: str, span: Span) -> Value:
        """The mask of a concatenated axis; a part without padding is real."""
        parts = self.axes.joined[axis]
        masks = [self.mask(part.name, span) for part in parts]
        reals = [mask or self._real(axis, part, span) for part, mask in zip(parts, masks, strict=True)]
        packed = () if masks[0] is None else (masks[0],)
        op = Concatenate(parts[0].name, parts[1].name, axis)
        return self._at_root(op, (*reals, *packed), f"{axis}/mask", span)

    def _real(self, axis: str, part: Axis, span: Span) -> Value:
        assert part.size is not None, f"{part} has no padding and no size"
        ones = self._at_root(Constant((part.name,), (part.size,), (1.0,)), (), f"{axis}/{part.name}/ones/mask", span)
        return self._at_root(Compare("greater", 0.0), (ones,), f"{axis}/{part.name}/mask", span)

    def complete(self, op: Op, inputs: tuple[Value, ...], name: str, span: Span) -> Value:
        """Write a node that follows a stage and belongs to no step."""
        return self._at_root(op, inputs, name, span)

    def _at_root(self, op: Op, inputs: tuple[Value, ...], name: str, span: Span) -> Value:
        value = self._root.emit(op, inputs, name, span.place)
        self._spans[value.name] = span
        return value

    def parameter(
        self, path: str, axes: tuple[Axis, ...], initial: Initial, site: "Site", *, trained: bool, outputs: int
    ) -> Value:
        """Declare the parameter of this path, or return the one that it is tied to."""
        own, pattern = self._own(path)
        declared = Parameter(Value(own, Type("float32", axes)), initial, trained, outputs)
        name, tie, again = self._tied.weight(own)
        if again is not None:
            raise SpecError.at(again, f"'{own}' is tied twice", "merge the two groups")
        known = self._root.parameters.get(name)
        taken = path in self._written or self._patterns.setdefault(own, pattern) != pattern
        if taken or (known is None and name in self._root.names):
            hint = "name one of the steps, as in {name: second, BLOCK: ..}, or all of them by a mapping under 'do'"
            raise site.refuse(f"two parameters would be called '{own}'", hint)
        if known is not None and known.type != declared.type:
            if tie is None:
                message = f"{own} {_axes(known)} cannot be shared with the next turn: its axes are {_axes(declared)}"
                raise site.refuse(message)
            message = f"{own} {_axes(declared)} cannot be tied to {name} {_axes(known)}: their axes differ"
            raise SpecError.at(tie, message)
        self._written.add(path)
        self._declared.setdefault(own, declared)
        self._count += declared.count if known is None else 0
        if self._count > MAX_PARAMETERS:
            raise site.refuse(f"the model has more than {MAX_PARAMETERS:,} parameters")
        value = self._root.parameter(name, declared.type, initial, trained=trained)
        self._root.parameters[name] = replace(self._root.parameters[name], outputs=outputs)
        return value

    def share(self, turn: str) -> None:
        """Leave this turn's index out of the paths of parameters, so that all turns have the same ones."""
        self._turns.add(turn)

    def paths(self) -> dict[str, tuple[str, ...]]:
        """All paths of each parameter, by its name: several if it is tied."""
        return {name: tuple(self._tied.members.get(name, (name,))) for name in self._root.parameters}

    def _own(self, path: str) -> tuple[str, str]:
        """A parameter's path without the indices of shared turns, and the same with * for each."""
        own: list[str] = []
        pattern: list[str] = []
        around = ""
        for part in path.split("/"):
            around = f"{around}/{part}" if around else part
            if around not in self._turns:
                own.append(part)
            pattern.append("*" if around in self._turns else part)
        return "/".join(own), "/".join(pattern)

    def end_stage(self, name: str, span: Span, value: Value) -> None:
        """Note that `value` is that of a stage: if nothing uses it, the stage is named and not its last step."""
        self._stages[value.name] = Problem(span, f"the result of the stage '{name}' is never used")

    def end_repeat(self, values: Iterable[Value]) -> None:
        """Note values that nothing has to use: what a last turn would carry to the next, and what others return."""
        self._optional.update(value.name for value in values)

    def finish(self, results: Sequence[Value]) -> Graph:
        """The graph. Raises: SpecError for ties to unknown parameters; for unused results, inputs and parameters."""
        raise_problems(self._tied.problems(self._declared, self._left_out))
        for name in self._tied.members:
            known, first = self._root.parameters[name], self._declared[name]
            self._root.parameters[name] = replace(known, initial=first.initial, outputs=first.outputs)
        graph = self._without_optional(self._root.finish(results))
        raise_problems(self._unused(graph) or self._idle(graph))
        return graph

    def _without_optional(self, graph: Graph) -> Graph:
        """The graph without what only values that nothing has to use need, and without its parameters."""
        read = self._optional.union(value.name for node in graph.nodes for value in node.inputs)
        ends = [value for node in graph.nodes for value in node.outputs if value.name not in read]
        rest = replace(pruned(replace(graph, outputs=(*graph.outputs, *ends))), outputs=graph.outputs)
        for name in {one.name for one in graph.parameters} - {one.name for one in rest.parameters}:
            del self._root.parameters[name]
        return rest

    def _unused(self, graph: Graph) -> list[Problem]:
        used = {value.name for node in graph.nodes for value in node.inputs} | {value.name for value in graph.outputs}
        used |= {node.outputs[0].name for node in graph.nodes if isinstance(node.op, AuxiliaryLoss)}
        idle = [node.outputs[0].name for node in graph.nodes if node.outputs[0].name not in used]
        steps = {name: Problem(self._spans[name], "the result of this step is never used") for name in idle}
        problems = list(dict.fromkeys(self._stages.get(name, problem) for name, problem in steps.items()))
        inputs = [value.name for value in graph.inputs if value.name in self.inputs and value.name not in used]
        return problems + [Problem(self.inputs[name].span, f"the input '{name}' is never used") for name in inputs]

    def _idle(self, graph: Graph) -> list[Problem]:
        """The steps that read a parameter on which the result does not depend, each with its first such parameter."""
        losses = [node.outputs[0] for node in graph.nodes if isinstance(node.op, AuxiliaryLoss)]
        needed, found = needed_values(graph, (*graph.outputs, *losses)), dict[Span, str]()
        for parameter in graph.parameters:
            if parameter.name not in needed:
                node = next(readers(graph, parameter.name))
                found.setdefault(self._spans[node.outputs[0].name], parameter.name)
        hint = "use the result of this step, or remove it"
        return [
            Problem(span, f"the model's result does not depend on the parameter {name}", hint)
            for span, name in found.items()
        ]


def _mask_of(axis: str, part: Fewer) -> Slice:
    """The op that makes the mask of a part of an axis from the mask of that axis."""
    return Slice(part.of, axis, part.lost, 0, part.stride, part.count, keep_first=part.lost > 0)


def _axes(parameter: Parameter) -> str:
    return f"[{', '.join(map(str, parameter.type.axes))}]"


@dataclass(frozen=True)
class Site:
    """The place where a primitive is used; it writes nodes and declares parameters under the path of its step."""

    writer: Writer
    binder: Binder
    call: Call
    scope: Scope
    path: str

    def emit(self, op: Op, *inputs: Value, name: str = "") -> Value:
        """Write a node; its result is named after the step and `name`."""
        path = f"{self.path}/{name}" if name else self.path
        try:
            value = self.writer.emit(op, inputs, path, self.scope)
        except RuleError as error:
            raise self.refuse(error.message, error.hint) from None
        names = value.type.names
        if len(set(names)) < len(names):
            raise self.refuse(f"its result would have the same axis twice: {value.type}")
        return value

    def parameter(
        self,
        name: str,
        axes: tuple[Axis, ...],
        initial: Initial | Initialization,
        *,
        trained: bool = True,
        outputs: int | None = None,
    ) -> Value:
        """Declare a parameter of this step. Raises: SpecError if an axis has no size, or its initial values misfit."""
        unknown = [axis.name for axis in axes if axis.size is None]
        if unknown:
            message = f"its weights need the size of {', '.join(unknown)}, which is known only at run time"
            raise self.refuse(message, "its channels are the last axis of the value, unless it names another one")
        first = len(axes) - 1 if outputs is None else outputs
        if isinstance(initial, Initialization):
            try:
                initial = initial.of(axes, first)
            except RuleError as error:
                raise self.refuse(error.message) from None
        return self.writer.parameter(f"{self.path}/{name}", axes, initial, self, trained=trained, outputs=first)

    def positions(self, value: Value) -> str:
        """The value's axis of positions: of an input, or of a step that made positions."""
        found = [name for name in value.type.names if self.holds_positions(name)]
        if len(found) != 1:
            raise self.refuse(f"needs a value with one axis of positions, found {value.name}: {value.type}")
        return found[0]

    def holds_positions(self, axis: str) -> bool:
        """Whether this is an axis of positions."""
        return self.writer.axes.holds(axis)

    def keys(self, value: Value) -> Keys:
        """The value's axis of keys."""
        keys = self.writer.axes.keys
        found = [keys[name] for name in value.type.names if name in keys]
        if len(found) != 1:
            hint = "as_keys turns positions into keys"
            raise self.refuse(f"needs a value with one axis of keys, found {value.name}: {value.type}", hint)
        return found[0]

    def make_keys(self, positions: str, window: int | None) -> Keys:
        """The axis of keys for these positions; the same window returns the same axis."""
        return self.writer.axes.make_keys(positions, window)

    def make_positions(self, axis: str) -> None:
        """Declare that this axis holds positions, none of which is padding."""
        self.writer.axes.whole.add(axis)

    def fewer(self, of: Axis, stride: int, lost: int = 0, name: str | None = None, count: int | None = None) -> Axis:
        """The axis for every `stride`-th element of `of` but its last `lost`; see `graph.primitives.Site`."""
        return self._new_axis(lambda axes: axes.make_fewer(of, stride, lost, name, count))

    def longer(self, of: Axis, times: int, name: str | None = None) -> Axis:
        """The axis with `times` elements for each of the axis `of`."""
        return self._new_axis(lambda axes: axes.make_longer(of, times, name))

    def origin(self, longer: Axis) -> tuple[Axis, Value] | None:
        """The axis of positions that `longer` restores, and its mask; see `graph.primitives.Site`."""
        found = self.writer.axes.origin(longer)
        mask = None if found is None else self.mask(found.name)
        return None if found is None or mask is None else (found, mask)

    def joined(self, first: Axis, second: Axis, name: str | None = None) -> Axis:
        """The axis of the positions of one axis and then of another; the same axes return the same axis."""
        return self._new_axis(lambda axes: axes.make_joined(first, second, name))

    def _new_axis(self, make: Callable[[PositionAxes], Axis]) -> Axis:
        try:
            axis = make(self.writer.axes)
        except NameTaken as error:
            raise self.refuse(str(error), "name the new axis with to_positions") from None
        self.binder.used.update({axis.name} & self.binder.sizes.keys())
        return axis

    def rest(self, of: Axis, start: int, end: int) -> Axis | None:
        """What is left of a concatenated axis without `start` first and `end` last elements, if that is an axis."""
        return self.writer.axes.rest(of, start, end)

    def axis(self, value: Value, name: str) -> Axis:
        """The value's axis `name`; `positions` and `keys` refer to its axis of positions and of keys."""
        known = self.positions(value) if name == "positions" else self.keys(value).name if name == "keys" else name
        if known == "batch":
            raise self.refuse(
                "the examples of a batch are not an axis of the model", "a result depends on one example only"
            )
        if known not in value.type.names:
            hint = suggest(name, value.type.names) or f"it has {', '.join(value.type.names)}"
            raise self.refuse(f"{value.name}: {value.type} has no axis '{name}'", hint)
        return value.type.axis(known)

    def last(self, value: Value) -> Axis:
        """The value's last axis, which must not be that of the batch."""
        if not value.type.axes:
            raise self.refuse(f"needs a value with an axis, found {value.name}: {value.type}")
        return self.axis(value, value.type.names[-1])

    def clear_last(self, value: Value) -> Axis:
        """The value's last axis, which must not have come behind another by matching names."""
        axis, found = self.last(value), self.writer.behind.get(value.name)
        if found is None:
            return axis
        other, op = found
        message = f"which axis? the last of {value.type} is {axis.name}, which {op.kind} put behind {other}"
        raise self.refuse(message, f"write {self.call.name}: {{over: {other}}} or {{over: {axis.name}}}")

    def trace(
        self, inputs: Mapping[str, Type], make: Callable[[tuple[Value, ...]], tuple[Value, ...]]
    ) -> tuple[Graph, tuple[Value, ...]]:
        """The graph that `make` writes, and the outer values that it captures as additional inputs."""
        return self.writer.trace(self.path, inputs, make)

    def mask(self, axis: str) -> Value | None:
        """A mask, true at the real positions along `axis`; None if all are real."""
        return self.writer.mask(axis, self.scope.user)

    def padding(self, axis: str) -> Value | None:
        """The mask for an axis of positions; None for an axis of keys, whose scores `mask` hides."""
        return self.mask(axis) if self.holds_positions(axis) else None

    def vocabulary(self, tokens: Value) -> Axis:
        """The vocabulary axis of an input of tokens."""
        found = self.writer.inputs.get(tokens.name)
        if found is None or found.kind != "tokens":
            raise self.refuse(
                f"needs an input of tokens, found {tokens.name}: {tokens.type}",
                "name the size of the table: embedding: {size: .., entries: ..}",
            )
        return found.axes[0]

    def logits(self) -> Type | None:
        """The type of the logits of the text that the model writes; None if it writes none."""
        return self.writer.logits

    def refuse(self, message: str, hint: str | None = None) -> SpecError:
        """The error for a mistake at this step; the caller raises it."""
        return self.scope.problem(self.call.span, message, hint)

    def refuse_number(self, argument: str, value: float, message: str) -> SpecError:
        """The error for an invalid number for this argument; the caller raises it."""
        given = self.call.arguments[argument]
        assert isinstance(given, Tree)
        flat = (item for item in given.items if not item.items)
        wrong = (item for item in flat if self.binder.number(item, self.scope) == value)
        return self.binder.unfit(next(wrong, given), self.scope, value, message)
