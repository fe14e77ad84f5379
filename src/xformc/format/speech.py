"""What an engine says of the speech that it writes down: how long a sound it reads, its languages, tasks and times."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

TRANSCRIBE = "transcribe"
"""The task of texts in the language that is spoken."""

MAX_SECONDS, MAX_NAMES = 3600.0, 1000
MIN_STEP = 0.001
"""The fewest seconds from one timestamp to the next."""

_LAST = 2**31 - 1


@dataclass(frozen=True)
class Timestamps:
    """Tokens that are times: `first` is that of 0 seconds, and each one after it, to the end of the vocabulary, is that
    of `step` seconds more. A text begins with one of at most `latest` seconds."""

    first: int
    step: float
    latest: float

    def seconds(self, token: int) -> float | None:
        """The time of a token; None for one of text."""
        return None if token < self.first else (token - self.first) * self.step


@dataclass(frozen=True)
class Times:
    """The tokens that texts with timestamps follow (docs/search.md): those from `first` on are times, of which a text
    begins with one up to `latest`; those below `special` are words; `silent`, if it is a token, is in no text."""

    first: int
    latest: int
    special: int
    silent: int


@dataclass(frozen=True)
class Speech:
    """The longest sound that the model reads, in seconds, and the tokens of languages, of tasks, and of texts without
    timestamps; a text begins with one of each. `timestamps` are the tokens of times, if it knows them."""

    seconds: float
    languages: Mapping[str, int] = field(default_factory=dict[str, int])
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])
    no_timestamps: int | None = None
    timestamps: Timestamps | None = None

    def prefix(self, language: str, task: str, *, timed: bool = False) -> tuple[int, ...]:
        """The tokens that a text begins with, in a language and of a task of this model; `timed`: with timestamps."""
        last = () if self.no_timestamps is None or timed else (self.no_timestamps,)
        return (self.languages[language], *((self.tasks[task],) if self.tasks else ()), *last)

    def times(self, end: Sequence[int]) -> Times | None:
        """What texts with timestamps follow, which these tokens end; None for a model without timestamps."""
        if self.timestamps is None:
            return None
        first, count = self.timestamps.first, int(self.timestamps.latest / self.timestamps.step + 1e-6)
        return Times(
            first, min(first + count, _LAST), min(end), -1 if self.no_timestamps is None else self.no_timestamps
        )

    def recorded(self) -> dict[str, object]:
        """The fields as engine.json has them."""
        return {
            "seconds": self.seconds,
            "languages": {**self.languages},
            "tasks": {**self.tasks},
            "no_timestamps": self.no_timestamps,
            **({} if self.timestamps is None else {"timestamps": asdict(self.timestamps)}),
        }
