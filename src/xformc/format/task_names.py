"""The tasks of engines, by their names in specs, in engine.json and on the command line."""

from collections.abc import Mapping
from typing import Literal, get_args

TaskName = Literal["translation", "language_model", "tagging", "classification"]
TASK_NAMES: tuple[TaskName, ...] = get_args(TaskName)

WRITTEN: Mapping[str, tuple[str, ...]] = {"translation": ("source", "target"), "language_model": ("text",)}
"""The tasks whose engines write text, with their inputs, all of tokens. The others give labels, from any inputs."""

METHODS: Mapping[str, str] = {
    "translation": "translate",
    "language_model": "generate",
    "tagging": "predict",
    "classification": "predict",
}
"""What an engine of each task is called with, in Python and on the command line."""
