"""The steps of a spec as they nest, each with the values that go in and come out: what a picture is drawn from.

A graph has lost which steps a block held; here the elaborator itself is watched while it writes the graph.
"""

from dataclasses import dataclass, field
from typing import Literal

from xformc.compiler.graph.graph import Graph, Op, Value
from xformc.compiler.spec import Spec
from xformc.compiler.spec.elaborate import Elaborator
from xformc.compiler.spec.model import Model
from xformc.compiler.spec.problems import Span
from xformc.compiler.spec.scope import Scope
from xformc.compiler.spec.syntax import Block, Body, Call, Inline
from xformc.compiler.spec.tree import Tree
from xformc.compiler.spec.writer import Writer

Kind = Literal["stage", "repeat", "block", "primitive"]


@dataclass(frozen=True)
class Frame:
    """One step that was applied to `x` and gave `result`.

    `name` is its block's, its primitive's or its stage's; `step` what the spec calls this step of a body, if it says
    so; `written` its first argument as it stands in the spec, `numbers` those that are numbers; `given`: it was given a
    block. `made` are the names of all values that were written in it, `children` the steps in it: of a repetition,
    those of the first time.
    """

    kind: Kind
    name: str
    step: str | None
    written: str
    numbers: str
    given: bool
    x: Value
    result: Value
    made: tuple[str, ...]
    children: "tuple[Frame, ...]"
    times: int = 1


@dataclass(frozen=True)
class Trace:
    """The graph of a spec, and the steps that wrote it, stage by stage."""

    graph: Graph
    stages: tuple[Frame, ...]


def trace_spec(spec: Spec) -> Trace:
    """Elaborate the spec and keep how its steps nest. Raises: SpecError, as `Spec.graph` does."""
    spec.graph()  # which refuses what the elaborator alone does not see
    watched = _Watched(spec.name, spec.model)
    graph = watched.run(spec.task).graph
    return Trace(graph, tuple(watched.open[0]))


class _Recorder(Writer):
    """A writer that remembers the order in which values were made."""

    def __init__(self, name: str, model: Model) -> None:
        super().__init__(name, model)
        self.made: list[str] = []

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str, span: Span) -> Value:
        value = super().emit(op, inputs, name, span)
        self.made.append(value.name)
        return value


@dataclass
class _Label:
    """What a frame that is being watched is called."""

    kind: Kind
    name: str
    step: str | None = None
    written: str = ""
    numbers: str = ""
    given: bool = False
    times: int = 1
    start: int = field(default=0)


class _Watched(Elaborator):
    """The elaborator, with a frame for each stage, repetition, block and primitive; `open` ends in the innermost."""

    def __init__(self, name: str, model: Model) -> None:
        super().__init__(name, model)
        self.writer = self.recorder = _Recorder(name, model)
        self.open: list[list[Frame]] = [[]]

    def inline(self, step: Inline, scope: Scope, x: Value, path: str) -> Value:
        if step is self.model.stages.get(path):
            label = self._enter(_Label("stage", path))
            return self._leave(label, x, self._repeated(step, scope, x, path))
        return self._repeated(step, scope, x, path)

    def _repeated(self, step: Inline, scope: Scope, x: Value, path: str) -> Value:
        if step.repeat is None:
            return super().inline(step, scope, x, path)
        label = self._enter(_Label("repeat", "", times=int(self.binder.number(step.repeat, scope))))
        return self._leave(label, x, super().inline(step, scope, x, path))

    def block(self, block: Block, call: Call, scope: Scope, x: Value, path: str) -> Value:
        label = self._enter(_called("block", call))
        return self._leave(label, x, super().block(block, call, scope, x, path))

    def primitive(self, call: Call, scope: Scope, x: Value, path: str) -> Value:
        label = self._enter(_called("primitive", call))
        return self._leave(label, x, super().primitive(call, scope, x, path))

    def _enter(self, label: _Label) -> _Label:
        label.start = len(self.recorder.made)
        self.open.append([])
        return label

    def _leave(self, label: _Label, x: Value, result: Value) -> Value:
        made, children = tuple(self.recorder.made[label.start :]), self.open.pop()
        once = children[: len(children) // max(label.times, 1)]
        self.open[-1].append(
            Frame(
                label.kind,
                label.name,
                label.step,
                label.written,
                label.numbers,
                label.given,
                x,
                result,
                made,
                tuple(once),
                label.times,
            )
        )
        return result


def _called(kind: Kind, call: Call) -> _Label:
    given = any(isinstance(argument, Body) for argument in call.arguments.values())
    step = call.level if call.level != call.name and not given else None
    first = next(iter(call.arguments.values()), None)
    written = str(first.value) if isinstance(first, Tree) and not isinstance(first.value, dict | tuple) else ""
    numbers = [
        f"{name}={argument.value}"
        for name, argument in call.arguments.items()
        if isinstance(argument, Tree)
        and isinstance(argument.value, int | float)
        and not isinstance(argument.value, bool)
    ]
    return _Label(kind, call.name, step, written, ", ".join(numbers), given)
