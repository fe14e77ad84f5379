"""The tasks of engines: the words for common models, and how the engine of each computes its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

TaskName = Literal["translation", "language_model", "tagging", "classification"]
"""The words that a spec may use instead of declaring its results."""

Decoding = Literal["search", "sample", "forward"]
"""How an engine computes: a beam search writes text, sampling continues text, or one forward pass gives all results."""


@dataclass(frozen=True)
class Task:
    """A task. `inputs`: its inputs, which are all tokens; None: any inputs. `method`: what runs its engine.

    alone: whether it has a single input, of tokens, which the engine writes.
    """

    decoding: Decoding
    method: str
    inputs: tuple[str, ...] | None = None
    alone: bool = False

    @property
    def writes(self) -> bool:
        """Whether its engine generates text."""
        return self.decoding != "forward"


WRITING, SAMPLED, RESULTS = "transcription", "sampling", "prediction"
"""The tasks of specs that declare their results: with text that is searched for, with text that is sampled, and without
text."""

TASKS: Mapping[str, Task] = {
    "translation": Task("search", "translate", ("source", "target")),
    "language_model": Task("sample", "generate", alone=True),
    "tagging": Task("forward", "predict"),
    "classification": Task("forward", "predict"),
    WRITING: Task("search", "transcribe"),
    SAMPLED: Task("sample", "transcribe"),
    RESULTS: Task("forward", "predict"),
}
"""Every task by its name in engine.json. The first four are also words of the spec language."""

NAMED: tuple[TaskName, ...] = get_args(TaskName)


def tasks_with(method: str) -> tuple[str, ...]:
    """The tasks whose engines have this method, by their words in a spec if they have any."""
    found = tuple(name for name, task in TASKS.items() if task.method == method)
    return tuple(name for name in found if name in NAMED) or found
