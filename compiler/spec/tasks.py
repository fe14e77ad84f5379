"""The tasks of a model: the inputs, the result and the settings of each."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.spec.model import Input
from xformc.compiler.spec.problems import Problem, Span, listed, suggest
from xformc.compiler.spec.tree import Tree
from xformc.format.task_names import WRITTEN
from xformc.format.tokens import IGNORE, PAD


@dataclass(frozen=True)
class Task:
    """The task of a model.

    `inputs`: its token inputs, or None for any inputs. `time`: the input that is decoded token by token, or None for
    tasks that predict labels. `positions`: whether the result has one row per position. `decode`: the keys of the
    section `decode` that apply to it.
    """

    inputs: tuple[str, ...] | None
    time: str | None
    positions: bool
    decode: tuple[str, ...]

    @property
    def ignore(self) -> int:
        """The label that the loss ignores."""
        return IGNORE if self.time is None else PAD

    def fits(self, result: Type, inputs: Mapping[str, Input]) -> bool:
        """Whether the last stage may return this type."""
        if self.time is not None:
            return result == _logits(self.time, inputs)
        head, last = result.axes[:-1], result.axes[-1:]
        names = [axis.name for axis in head]
        sequences = [name for name in names[1:] if name in inputs]
        sized = len(last) == 1 and last[0].size is not None
        return (
            result.dtype == "float32" and sized and names == ["batch", *sequences] and len(sequences) == self.positions
        )

    def wanted(self, inputs: Mapping[str, Input]) -> str:
        """What the last stage must return, in words."""
        if self.time is not None:
            return str(_logits(self.time, inputs))
        if not self.positions:
            return "float32[batch, LABELS], where LABELS is a size"
        sequences = [name for name, item in inputs.items() if item.is_sequence]
        return f"float32[batch, {' or '.join(sequences) or 'POSITIONS'}, LABELS], where LABELS is a size"


TASKS: dict[str, Task] = {
    "translation": Task(
        WRITTEN["translation"], "target", True, ("beam_size", "n_best", "length_penalty", "max_length")
    ),
    "language_model": Task(WRITTEN["language_model"], "text", True, ("sample",)),
    "tagging": Task(None, None, True, ()),
    "classification": Task(None, None, False, ()),
}
"""Every task by its name in a spec."""

DECODE = tuple(key for task in TASKS.values() for key in task.decode)


def input_problems(name: str, inputs: Tree, known: Mapping[str, Input]) -> list[Problem]:
    """Check the inputs declared at `inputs` for the task `name`."""
    wanted = TASKS[name].inputs
    if wanted is None:
        return [] if inputs.entries else [Problem(inputs.span, f"{name} needs an input")]
    problems = [
        Problem(inputs.span, f"{name} needs the input '{item}'") for item in wanted if item not in inputs.entries
    ]
    for item, entry in inputs.entries.items():
        if item not in wanted:
            hint = suggest(item, wanted) or f"its inputs are {' and '.join(wanted)}"
            problems.append(Problem(entry.key, f"{name} has no input '{item}'", hint))
        elif item in known and known[item].kind != "tokens":
            hint = f"write {item}: {{tokens: SIZE}}"
            problems.append(
                Problem(entry.key, f"the input '{item}' of {name} must be tokens, found {known[item].kind}", hint)
            )
    return problems


def idle_settings(name: str, inputs: Mapping[str, Input]) -> dict[tuple[str, ...], str]:
    """The settings without effect for this task and these inputs: the path of each, and the reason."""
    task, arrays = TASKS[name], [other for other, item in inputs.items() if item.kind != "tokens"]
    idle: dict[tuple[str, ...], str] = {}
    if not task.decode:
        others = listed(other for other, item in TASKS.items() if item.decode)
        idle["decode",] = f"{name} predicts labels; only {others} has decoding settings"
    for key in DECODE if task.decode else ():
        if key not in task.decode:
            idle["decode", key] = f"the decoding settings of {name} are {', '.join(task.decode)}"
    if arrays:
        idle["train", "tokenizer"] = f"the input {arrays[0]} is not text, so examples are arrays"
    elif len(inputs) == 1:
        idle["train", "tokenizer", "shared"] = "the model has only one input"
    if not any(item.is_sequence for item in inputs.values()):
        idle["train", "max_length"] = "no input has positions"
    return idle


def idle_problems(name: str, tree: Tree, inputs: Mapping[str, Input]) -> list[Problem]:
    """Report settings without effect, unless the inputs are already wrong."""
    declared = tree.get("inputs")
    if not inputs or declared is None or declared.entries.keys() != inputs.keys():
        return []
    return [
        Problem(key, f"{'.'.join(path)} has no effect here: {why}", "remove it")
        for path, why in idle_settings(name, inputs).items()
        if (key := _key(tree, path)) is not None
    ]


def _key(tree: Tree, path: tuple[str, ...]) -> Span | None:
    parent = tree.get(*path[:-1])
    entry = None if parent is None else parent.entries.get(path[-1])
    return None if entry is None else entry.key


def _logits(time: str, inputs: Mapping[str, Input]) -> Type:
    return Type("float32", (Axis("batch"), Axis(time), inputs[time].axes[0]))
