"""Texts for sounds longer than a model reads, in the language that is spoken or one that is asked for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.speech import TRANSCRIBE, Speech
from xformc.runtime.automaton import FREE, Matching, require_constraints
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.options import checked_number, checked_word
from xformc.runtime.rows import Row
from xformc.runtime.session import Session
from xformc.runtime.stream import Batching
from xformc.runtime.translate import Hypothesis, Part, search_rows

AUTO = "auto"
"""The language that is asked for where the model is to find it."""


@dataclass(frozen=True)
class Spoken:
    """How sounds become rows: the input that is the sound, the most positions of a part and the seconds of one, the
    prefix of all texts if it is known, else how the language of a sound is found, and whether only the best text is
    wanted."""

    name: str
    most: int
    seconds: float
    prefix: NDArray[np.int64] | None
    find: Callable[[Row], str] | None
    begin: Callable[[str], NDArray[np.int64]]
    alone: bool

    def stream(
        self, job: Job[Any, Row, list[Hypothesis]], session: Session, rows: Iterable[Row], batching: Batching
    ) -> Generator[list[Hypothesis]]:
        """Yield the texts of sounds, each with those of its parts, in order."""
        sounds = deque[tuple[list[int], str | None]]()

        def parts() -> Iterator[Row]:
            for row in rows:
                cut = self._parts(row)
                language = None if self.find is None or PREFIX in row else self.find(cut[0])
                sounds.append(([len(one[self.name]) for one in cut], language))
                begun = self.prefix if language is None else self.begin(language)
                yield from cut if begun is None or PREFIX in row else ({**one, PREFIX: begun} for one in cut)

        results = replace(job, encode=as_it_is).stream(session, parts(), batching)
        for first in results:
            lengths, language = sounds.popleft()
            found = [first, *(next(results) for _ in lengths[1:])]
            texts = first if len(found) == 1 else [self._joined([one for one, *_ in found], lengths)]
            yield [replace(one, language=language) for one in texts]

    def _parts(self, row: Row) -> list[Row]:
        """The rows of the parts of a sound. Raises: UserError if there are several, and more than the best text."""
        wave = row[self.name]
        cut = [wave[start : start + self.most] for start in range(0, len(wave), self.most)] or [wave]
        if len(cut) > 1 and not self.alone:
            message = f"n_best must be 1 for a sound of {len(cut)} parts of {self.most * self.seconds:g} seconds"
            raise UserError(message, hint="only the best text of each part is joined with the others")
        return [{**row, self.name: one} for one in cut]

    def _joined(self, found: Sequence[Hypothesis], lengths: Sequence[int]) -> Hypothesis:
        """The text of a sound, of those of its parts with these numbers of positions."""
        ends = np.cumsum(lengths) * self.seconds
        starts = [0.0, *ends[:-1].tolist()]
        parts = [
            Part(start, end, one.text.strip()) for start, end, one in zip(starts, ends.tolist(), found, strict=True)
        ]
        return replace(
            found[0],
            text=" ".join(one.text for one in parts if one.text),
            score=sum(one.score for one in found),
            tokens=tuple(token for one in found for token in one.tokens),
            token_scores=tuple(score for one in found for score in one.token_scores),
            parts=tuple(parts),
        )


def spoken(
    manifest: Manifest,
    session: Session,
    asked: tuple[str | None, str | None, float | None],
    *,
    begun: bool,
    n_best: int | None,
) -> Spoken | None:
    """Return how sounds are read, with the language, the task and the seconds of a part that are asked for, or None for
    an engine that reads no sounds, or sounds of any length. `begun`: the call gives prefixes.

    Raises: UserError for what the engine does not know.
    """
    language, task, part = asked
    speech, sounds = manifest.speech, [name for name, item in manifest.given.items() if item.rate is not None]
    given = {"language": language, "task": task, "part": part}
    idle = [name for name, value in given.items() if value is not None]
    if speech is None or len(sounds) != 1:
        if idle:
            message = f"{', '.join(idle)}: {manifest.name} is no model of speech with a longest sound"
            raise UserError(message, hint="its spec needs `decode: {speech: {seconds: ..}}`")
        return None
    item = manifest.given[sounds[0]]
    assert item.rate is not None
    tokens = (*speech.languages.values(), *speech.tasks.values(), speech.no_timestamps or 0)
    if max(tokens) >= manifest.inputs[manifest.written].pieces:
        message = f"engine.json of {manifest.name} has languages or tasks that are no tokens"
        raise UserError(message, hint="rebuild it with `xformc build`")
    seconds = checked_number("part", part, speech.seconds, item.hop / item.rate, speech.seconds)
    known = begun or (language is None and task is None and bool(manifest.prefix or not speech.languages))
    if begun and (language is not None or task is not None):
        raise UserError("prefixes exclude language and task", hint="leave out one, or give all tokens of the prefix")
    begin = partial(_begin, speech, task)
    found = None if known else _language(manifest, speech, language, task)
    defaults = manifest.defaults
    alone = (n_best or (defaults.n_best if isinstance(defaults, SearchOptions) else 1)) == 1
    return Spoken(
        sounds[0],
        int(seconds * item.rate / item.hop + 1e-6),
        item.hop / item.rate,
        None if known or found == AUTO else begin(str(found)),
        partial(_find, manifest, session, speech) if found == AUTO else None,
        begin,
        alone,
    )


def _language(manifest: Manifest, speech: Speech, language: str | None, task: str | None) -> str:
    """Return the language that is asked for. Raises: UserError for one or a task that the model does not know."""
    if not speech.languages:
        raise UserError(f"{manifest.name} knows one language and one task", hint="leave out language and task")
    if task is not None:
        checked_word("task", task, tuple(speech.tasks))
    if language not in (None, AUTO, *speech.languages):
        message = f"language must be {AUTO} or one of {', '.join(speech.languages)}, not {language!r}"
        raise UserError(message)
    if language in (None, AUTO) and manifest.prefix:
        raise UserError(f"{manifest.name} has a default prefix, so it finds no language", hint="say the language")
    return language or AUTO


def _begin(speech: Speech, task: str | None, language: str) -> NDArray[np.int64]:
    return np.array(speech.prefix(language, task or TRANSCRIBE), np.int64)


def _find(manifest: Manifest, session: Session, speech: Speech, row: Row) -> str:
    """Return the language of a sound: the likeliest first token of a text among those of the languages."""
    require_constraints(manifest)
    assert isinstance(manifest.defaults, SearchOptions)
    if len(row[next(iter(manifest.given))]) == 0:
        return next(iter(speech.languages))
    names, written = {token: name for name, token in speech.languages.items()}, manifest.inputs[manifest.written]
    table = np.full((2, written.pieces), FREE, np.int32)
    table[0, [*names]], table[1, [*written.special.end]] = 1, 1
    greedy: Any = {"beam_size": 1, "n_best": 1, "beam_groups": 1, "min_length": 0, "max_length_factor": 0.0}
    greedy |= {"max_length_offset": 2, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}
    greedy |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "suppress_tokens": ()}
    matching = Matching(table, np.array([1, 0]), (0,), 1, by_text=False)
    own = {name: value for name, value in row.items() if name in manifest.given}
    found = search_rows(session, [own], manifest, replace(manifest.defaults, **greedy), constraint=matching)
    return names[found.text(0, 0)[0]]
