"""Texts for sounds longer than a model reads, in the language that is spoken or one that is asked for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import TAKES_AUTOMATA
from xformc.format.interfaces import PREFIX, START, TIMED
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.speech import TRANSCRIBE, Speech, Timestamps
from xformc.runtime.constraints.automaton import FREE, Matching
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.options import checked_number, checked_word
from xformc.runtime.rows import Row
from xformc.runtime.searching.translate import Hypothesis, Part, search_rows
from xformc.runtime.session import Session
from xformc.runtime.stream import Batching
from xformc.runtime.text.segments import Segment, segments_of

AUTO = "auto"
"""The language that is asked for where the model is to find it."""

SIDE_BY_SIDE = 32
"""How many sounds with timestamps are read side by side, since the parts of one follow from each other."""

LEAST = 1.0
"""The fewest seconds from a part to the next one that begins where its segments end: no text takes endless time."""


@dataclass(frozen=True)
class Spoken:
    """How sounds become rows: the input that is the sound, the most positions of a part and the seconds of one, the
    prefix of all texts if it is known, else how the language of a sound is found, and whether only the best text is
    wanted. `timed` is how texts with timestamps are read; None for texts without."""

    name: str
    most: int
    seconds: float
    prefix: NDArray[np.int64] | None
    find: Callable[[Row], str] | None
    begin: Callable[[str], NDArray[np.int64]]
    alone: bool
    timed: "Timed | None" = None

    def stream(
        self, job: Job[Any, Row, list[Hypothesis]], session: Session, rows: Iterable[Row], batching: Batching
    ) -> Generator[list[Hypothesis]]:
        """Yield the texts of sounds, each with those of its parts, in order."""
        if self.timed is not None:
            yield from self._by_time(self.timed, replace(job, encode=as_it_is), session, rows, batching)
            return
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
            texts = first if len(found) == 1 else [_joined(self._as_parts([one for one, *_ in found], lengths))]
            yield [replace(one, language=language) for one in texts]

    def _by_time(
        self,
        timed: "Timed",
        job: Job[Any, Row, list[Hypothesis]],
        session: Session,
        rows: Iterable[Row],
        batching: Batching,
    ) -> Generator[list[Hypothesis]]:
        """Yield the texts of sounds, some side by side; the next part of each begins where the text of one ends."""
        remaining = iter(rows)
        while some := list(islice(remaining, batching.window or SIDE_BY_SIDE)):
            sounds = [self._begun(row, timed) for row in some]
            while opened := [sound for sound in sounds if sound.begin is not None]:
                parts = [self._part(sound) for sound in opened]
                for sound, found in zip(opened, job.stream(session, parts, batching), strict=True):
                    self._read(sound, found, timed)
            for sound in sounds:
                yield [replace(one, language=sound.language) for one in sound.found]

    def _begun(self, row: Row, timed: "Timed") -> "_Sound":
        """The sound of a row. Raises: UserError if it has several parts, and more than the best text is wanted, or if
        its prefix is one of texts without timestamps."""
        first, *_ = self._parts(row)
        if timed.silent is not None and timed.silent in row.get(PREFIX, ()):
            message = f"a prefix has the token {timed.silent}, which is that of texts without timestamps"
            raise UserError(message, hint="leave it out")
        language = None if self.find is None or PREFIX in row else self.find(first)
        begun = self.prefix if language is None else self.begin(language)
        more = {} if begun is None or PREFIX in row else {PREFIX: begun}
        return _Sound({**row, **more, START: np.array(TIMED)}, language)

    def _part(self, sound: "_Sound") -> Row:
        wave = sound.row[self.name]
        return {**sound.row, self.name: wave[sound.begin : (sound.begin or 0) + self.most]}

    def _read(self, sound: "_Sound", found: list[Hypothesis], timed: "Timed") -> None:
        """Take in the texts of a part: the next one begins where the text of the best ends."""
        begun, begin, length = len(sound.row.get(PREFIX, ())), sound.begin or 0, len(sound.row[self.name])
        end, texts = min(begin + self.most, length), list[Hypothesis]()
        following = end
        for one in found:
            written = timed.written(one.tokens[begun:])
            segments, kept = segments_of(written, timed.timestamps)
            ended = timed.timestamps.seconds(written[kept - 1]) if self.alone and kept < len(written) else None
            tokens = one.tokens
            if ended is not None and ended >= LEAST:
                tokens, following = tokens[: begun + kept], min(end, begin + round(ended / self.seconds))
            else:
                segments, _ = segments_of(written, timed.timestamps, whole=True)
            parts = tuple(self._segment(segment, timed, begin, end) for segment in segments if segment.tokens)
            texts.append(replace(one, text=_text(parts), tokens=tokens, parts=parts))
        sound.found = [_joined([sound.found[0], texts[0]])] if sound.found else texts
        sound.begin = None if following >= length else following

    def _segment(self, segment: Segment, timed: "Timed", begin: int, end: int) -> Part:
        """A segment of the part of these positions, which its times do not leave."""
        first, last = begin * self.seconds, end * self.seconds
        stop = last if segment.end is None else min(first + segment.end, last)
        return Part(min(first + segment.start, last), stop, timed.decode(segment.tokens).strip())

    def _parts(self, row: Row) -> list[Row]:
        """The rows of the parts of a sound. Raises: UserError if there are several, and more than the best text."""
        wave = row[self.name]
        cut = [wave[start : start + self.most] for start in range(0, len(wave), self.most)] or [wave]
        if len(cut) > 1 and not self.alone:
            message = f"n_best must be 1 for a sound of {len(cut)} parts of {self.most * self.seconds:g} seconds"
            raise UserError(message, hint="only the best text of each part is joined with the others")
        return [{**row, self.name: one} for one in cut]

    def _as_parts(self, found: Sequence[Hypothesis], lengths: Sequence[int]) -> list[Hypothesis]:
        """The texts of the parts of a sound, which have these numbers of positions, each with its part."""
        ends = (np.cumsum(lengths) * self.seconds).tolist()
        spans = zip([0.0, *ends[:-1]], ends, found, strict=True)
        return [replace(one, parts=(Part(start, end, one.text.strip()),)) for start, end, one in spans]


@dataclass(frozen=True)
class Timed:
    """How texts with timestamps are read: the tokens of times, the one of texts without times, those that end a text,
    and the text of others."""

    timestamps: Timestamps
    silent: int | None
    end: tuple[int, ...]
    decode: Callable[[Sequence[int]], str]

    def written(self, tokens: Sequence[int]) -> list[int]:
        """The tokens without end tokens."""
        return [token for token in tokens if token not in self.end]


@dataclass
class _Sound:
    """A sound whose parts are read one after the other: its row, its language if it was found, the position at which
    the next part begins, None at the end, and its texts so far."""

    row: Row
    language: str | None
    begin: int | None = 0
    found: list[Hypothesis] = field(default_factory=list[Hypothesis])


def _text(parts: Sequence[Part]) -> str:
    return " ".join(part.text for part in parts if part.text)


def _joined(found: Sequence[Hypothesis]) -> Hypothesis:
    """The texts of the parts of a sound as one."""
    parts = tuple(part for one in found for part in one.parts)
    return replace(
        found[0],
        text=_text(parts),
        score=sum(one.score for one in found),
        tokens=tuple(token for one in found for token in one.tokens),
        token_scores=tuple(score for one in found for score in one.token_scores),
        parts=parts,
    )


def spoken(
    manifest: Manifest,
    session: Session,
    asked: tuple[str | None, str | None, float | None],
    *,
    decode: Callable[[Sequence[int]], str] | None = None,
    begun: bool,
    n_best: int | None,
) -> Spoken | None:
    """Return how sounds are read, with the language, the task and the seconds of a part that are asked for, or None for
    an engine that reads no sounds, or sounds of any length. `begun`: the call gives prefixes. `decode`: texts have
    timestamps, and this is the text of their other tokens.

    Raises: UserError for what the engine does not know.
    """
    language, task, part = asked
    speech, sounds = manifest.speech, [name for name, item in manifest.given.items() if item.rate is not None]
    given = {"language": language, "task": task, "part": part, "timestamps": decode}
    idle = [name for name, value in given.items() if value is not None]
    if speech is None or len(sounds) != 1:
        if idle:
            message = f"{', '.join(idle)}: {manifest.name} is no model of speech with a longest sound"
            raise UserError(message, hint="its spec needs `decode: {speech: {seconds: ..}}`")
        return None
    item = manifest.given[sounds[0]]
    assert item.rate is not None
    first = 0 if speech.timestamps is None else speech.timestamps.first
    tokens = (*speech.languages.values(), *speech.tasks.values(), speech.no_timestamps or 0, first)
    if max(tokens) >= manifest.inputs[manifest.written].pieces:
        message = f"engine.json of {manifest.name} has languages, tasks or times that are no tokens"
        raise UserError(message, hint="rebuild it with `xformc build`")
    seconds = checked_number("part", part, speech.seconds, item.hop / item.rate, speech.seconds)
    known = begun or (language is None and task is None and bool(manifest.prefix or not speech.languages))
    if begun and (language is not None or task is not None):
        raise UserError("a prefix excludes language and task", hint="leave out one, or give all tokens of the prefix")
    timed = None if decode is None else _timed(manifest, speech, decode)
    begin = partial(_begin, speech, task, timed is not None)
    found = None if known else _language(manifest, speech, language, task)
    defaults = manifest.defaults
    alone = (n_best or (defaults.n_best if isinstance(defaults, SearchOptions) else 1)) == 1
    return Spoken(
        sounds[0],
        int(seconds * item.rate / item.hop + 1e-6),
        item.hop / item.rate,
        (_default(manifest, speech) if timed else None) if known or found == AUTO else begin(str(found)),
        partial(_find, manifest, session, speech) if found == AUTO else None,
        begin,
        alone,
        timed,
    )


def _timed(manifest: Manifest, speech: Speech, decode: Callable[[Sequence[int]], str]) -> Timed:
    """Raises: UserError for an engine that knows no times."""
    if speech.timestamps is None:
        message = f"{manifest.name} knows no timestamps"
        raise UserError(message, hint="its spec needs `decode: {speech: {timestamps: {first: ..}}}`")
    manifest.require(TAKES_AUTOMATA)
    return Timed(speech.timestamps, speech.no_timestamps, manifest.inputs[manifest.written].special.end, decode)


def _default(manifest: Manifest, speech: Speech) -> NDArray[np.int64] | None:
    """The default prefix as one of texts with timestamps; None if nothing of it is left."""
    left = [token for token in manifest.prefix if token != speech.no_timestamps]
    return np.array(left, np.int64) if left else None


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


def _begin(speech: Speech, task: str | None, timed: bool, language: str) -> NDArray[np.int64]:
    return np.array(speech.prefix(language, task or TRANSCRIBE, timed=timed), np.int64)


def _find(manifest: Manifest, session: Session, speech: Speech, row: Row) -> str:
    """Return the language of a sound: the likeliest first token of a text among those of the languages."""
    manifest.require(TAKES_AUTOMATA)
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
