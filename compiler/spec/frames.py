"""The nesting of a spec's steps, with one frame per stage, repetition, block and primitive.

A graph does not record which block a node came from; its frames do.
"""

from dataclasses import dataclass
from typing import Literal

from xformc.compiler.graph.graph import Value
from xformc.compiler.spec.syntax import Body, Call
from xformc.compiler.spec.tree import Tree

Kind = Literal["stage", "repeat", "iteration", "block", "primitive"]


@dataclass(frozen=True)
class Frame:
    """One step that was applied to `x` and returned `result`.

    `name` names its stage, block or primitive. `path` is the prefix of its nodes and parameters, such as
    `encoder/0/self_attention`; a step that adds no level has the path of the step around it. `made` lists the values
    that its nodes and those of its `children` produce, in order. The children of a repeat are its iterations.

    For calls: `step` is the name in the spec if it differs from the block's, `written` the first argument as written,
    `numbers` the arguments that are numbers, and `given` is true if an argument is a block.
    """

    kind: Kind
    name: str
    path: str
    x: Value
    result: Value
    made: tuple[str, ...]
    children: "tuple[Frame, ...]"
    step: str | None = None
    written: str = ""
    numbers: str = ""
    given: bool = False

    @property
    def times(self) -> int:
        """The number of times its body was applied: the iterations of a repeat, otherwise 1."""
        return len(self.children) if self.kind == "repeat" else 1


_Begun = tuple[Kind, Call | str, str, Value, int]
_Ended = tuple[Value, int]


class FrameLog:
    """The log of the steps that the elaborator enters and leaves; `made` lists the names of all values, in order.

    Elaboration only appends to it; frames are built on demand, since most specs are compiled without them.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self._events: list[_Begun | _Ended] = []

    def enter(self, kind: Kind, step: Call | str, path: str, x: Value) -> None:
        """Open a frame inside the open ones. `step`: the call, or the name of a frame that is not a call."""
        self._events.append((kind, step, path, x, len(self.made)))

    def leave(self, result: Value) -> Value:
        """Close the innermost frame; return `result`."""
        self._events.append((result, len(self.made)))
        return result

    def frames(self) -> tuple[Frame, ...]:
        """The frames of the stages, with all other frames nested inside."""
        begun: list[_Begun] = []
        children: list[list[Frame]] = [[]]
        for event in self._events:
            if len(event) == 5:
                begun.append(event)
                children.append([])
            else:
                inside = tuple(children.pop())
                children[-1].append(self._frame(begun.pop(), event, inside))
        return tuple(children[0])

    def _frame(self, begun: _Begun, ended: _Ended, children: tuple[Frame, ...]) -> Frame:
        kind, step, path, x, start = begun
        result, end = ended
        made = tuple(self.made[start:end])
        if isinstance(step, str):
            return Frame(kind, step, path, x, result, made, children)
        given = any(isinstance(argument, Body) for argument in step.arguments.values())
        level = step.level if step.level != step.name and not given else None
        return Frame(kind, step.name, path, x, result, made, children, level, _written(step), _numbers(step), given)


def _written(call: Call) -> str:
    first = next(iter(call.arguments.values()), None)
    return str(first.value) if isinstance(first, Tree) and not isinstance(first.value, dict | tuple) else ""


def _numbers(call: Call) -> str:
    written = {name: item.value for name, item in call.arguments.items() if isinstance(item, Tree)}
    return ", ".join(
        f"{name}={value}"
        for name, value in written.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
