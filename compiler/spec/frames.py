"""How the steps of a spec nest: one frame for each stage, repetition, block and primitive.

A graph alone does not say which block a node came from; its frames do.
"""

from dataclasses import dataclass
from typing import Literal

from xformc.compiler.graph.graph import Value
from xformc.compiler.spec.syntax import Body, Call
from xformc.compiler.spec.tree import Tree

Kind = Literal["stage", "repeat", "iteration", "block", "primitive"]


@dataclass(frozen=True)
class Frame:
    """One step that was applied to `x` and gave `result`.

    `name` is that of its stage, block or primitive. `path` begins the names of its nodes and parameters, such as
    `encoder/0/self_attention`; a step that adds no level has that of the step around it. `made` are the names of the
    values that its nodes gave, with those of its `children`, in order. The children of a repeat are its iterations.

    Of a call, `step` is what the spec names it, where that is not the block's name; `written` its first argument as it
    stands in the spec, `numbers` those that are numbers; `given`: a block is among them.
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
        """How often its body was applied: of a repeat, the number of iterations."""
        return len(self.children) if self.kind == "repeat" else 1


_Begun = tuple[Kind, Call | str, str, Value, int]
_Ended = tuple[Value, int]


class FrameLog:
    """What the elaborator enters and leaves, in order; `made` collects the names of all values as they are made.

    Elaboration only appends here: most specs are compiled without anyone asking for their frames.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self._events: list[_Begun | _Ended] = []

    def enter(self, kind: Kind, step: Call | str, path: str, x: Value) -> None:
        """Begin a frame inside those that are open. `step`: the call, or the name of what is no call."""
        self._events.append((kind, step, path, x, len(self.made)))

    def leave(self, result: Value) -> Value:
        """End the innermost frame; gives `result`."""
        self._events.append((result, len(self.made)))
        return result

    def frames(self) -> tuple[Frame, ...]:
        """The frames of the stages, with all others inside."""
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
