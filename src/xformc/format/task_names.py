"""The names of tasks in specs, in engine.json and on the command line."""

from collections.abc import Mapping
from typing import Literal, get_args

TaskName = Literal["translation", "language_model", "tagging", "classification"]
TASK_NAMES: tuple[TaskName, ...] = get_args(TaskName)

WRITTEN: Mapping[str, tuple[str, ...]] = {"translation": ("source", "target"), "language_model": ("text",)}
"""The tasks that generate text, with their inputs, which are all tokens. The others predict labels from any inputs."""

METHODS: Mapping[str, str] = {
    "translation": "translate",
    "language_model": "generate",
    "tagging": "predict",
    "classification": "predict",
}
"""The method and command that run an engine of each task."""
