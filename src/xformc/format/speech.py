"""What an engine says of the speech that it writes down: how long a sound it reads, and its languages and tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TRANSCRIBE = "transcribe"
"""The task of texts in the language that is spoken."""

MAX_SECONDS, MAX_NAMES = 3600.0, 1000


@dataclass(frozen=True)
class Speech:
    """The longest sound that the model reads, in seconds, and the tokens of languages, of tasks, and of texts without
    timestamps; a text begins with one of each."""

    seconds: float
    languages: Mapping[str, int] = field(default_factory=dict[str, int])
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])
    no_timestamps: int | None = None

    def prefix(self, language: str, task: str) -> tuple[int, ...]:
        """The tokens that a text begins with, in a language and of a task of this model."""
        last = () if self.no_timestamps is None else (self.no_timestamps,)
        return (self.languages[language], *((self.tasks[task],) if self.tasks else ()), *last)

    def recorded(self) -> dict[str, object]:
        """The fields as engine.json has them."""
        return {
            "seconds": self.seconds,
            "languages": {**self.languages},
            "tasks": {**self.tasks},
            "no_timestamps": self.no_timestamps,
        }
