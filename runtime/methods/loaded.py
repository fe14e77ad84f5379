"""What the methods of an engine share: its files, its tokenizers, and how they run."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self, TypeVar, cast

from xformc.errors import UserError
from xformc.format.abilities import SCORES_TEXTS
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest, numbers
from xformc.format.tasks import TASKS, tasks_with
from xformc.runtime.arrays import read_rows
from xformc.runtime.constraints.automaton import Matching
from xformc.runtime.each import asked, rows_with_own, split_by_text, values_of
from xformc.runtime.generation.constrain import Allowed
from xformc.runtime.job import Job
from xformc.runtime.media.reader import suffixes_of
from xformc.runtime.options import SearchArguments, resolve_options
from xformc.runtime.predict import Example, encode_example
from xformc.runtime.rows import Row
from xformc.runtime.score import with_token_scores
from xformc.runtime.searching.allow import check_allowed, write_allowed
from xformc.runtime.searching.choose import sampling
from xformc.runtime.searching.phrases import Phrase, with_phrases
from xformc.runtime.searching.prefix import Prefix, begin_with
from xformc.runtime.searching.translate import Hypothesis, tokens_needed, write_rows
from xformc.runtime.session import Session
from xformc.runtime.stream import Batching
from xformc.runtime.suppressed import Pieces, pieces_of
from xformc.runtime.text.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Loaded:
    """The files of an engine, opened, and what every method does with them."""

    manifest: Manifest
    tokenizer: Tokenizer | None
    session: Session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled. Raises: UserError."""
        raise UserError(
            "an engine cannot be sent to another process",
            hint="send the name of its folder, and load it there, such as in the `initializer` of a pool",
        )

    def close(self) -> None:
        """Free the model's memory. Later calls raise UserError; calls that are running end as usual."""
        self.session.close()

    def tokenizer_of(self, name: str) -> Tokenizer:
        """Return the tokenizer, which has the vocabulary of the input `name`. Raises: UserError if there is none."""
        return self._tokenizer({name: self.manifest.inputs[name]})

    def _check_method(self, called: str, method: str) -> None:
        check_method(self.manifest, called, method)

    def _examples(self, given: Sequence[Any] | Mapping[str, Any]) -> tuple[Sequence[Any], bool]:
        """Return the examples as items, and whether these are rows."""
        if isinstance(given, Mapping):
            return read_rows(self.manifest.given, given, self.manifest.targets), True
        if isinstance(given, str):
            raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
        return given, False

    def _all(
        self,
        job: Job[Item, Row, Result],
        method: str,
        items: Sequence[Item],
        prefixes: str | Iterable[Prefix] | None,
        batching: Batching,
        *,
        whole: bool = False,
        samples: int | None = None,
        phrases: Iterable[Sequence[Phrase]] | None = None,
    ) -> list[Result]:
        """The results of all items, whose texts begin with these prefixes."""
        Job.require_several(method, items)
        begun, pairs = self._begun(job, items, prefixes, phrases, whole=whole, samples=samples)
        return begun.all(self.session, method, list(pairs), batching)

    def _stream(
        self,
        job: Job[Item, Row, Result],
        items: Iterable[Item],
        prefixes: str | Iterable[Prefix] | None,
        batching: Batching,
        *,
        whole: bool = False,
        samples: int | None = None,
        phrases: Iterable[Sequence[Phrase]] | None = None,
    ) -> Generator[Result]:
        begun, pairs = self._begun(job, items, prefixes, phrases, whole=whole, samples=samples)
        return begun.stream(self.session, pairs, batching)

    def _begun(
        self,
        job: Job[Any, Any, Any],
        items: Iterable[Any],
        prefixes: str | Iterable[Prefix] | None,
        phrases: Iterable[Sequence[Phrase]] | None,
        *,
        whole: bool,
        samples: int | None,
    ) -> tuple[Job[Any, Any, Any], Iterable[Any]]:
        """The job whose texts begin with the prefixes and have the phrases, or are sampled so often, and its items."""
        if prefixes is not None:
            own = self.manifest, self.tokenizer
            job, items = begin_with(job, items, prefixes, manifest=own[0], tokenizer=own[1], whole=whole)
        if phrases is not None:
            if samples is not None:
                raise UserError("phrases: no effect on samples", hint="leave out phrases, or samples")
            job, items = with_phrases(job, items, phrases, manifest=self.manifest, tokenizer=self.tokenizer)
        return (job if samples is None else sampling(job, samples)), items

    def _search_of(
        self,
        encode: Callable[[int, Item], Row],
        options: SearchArguments,
        *,
        token_scores: bool = False,
        constraint: Matching | None = None,
        allowed: Allowed | None = None,
    ) -> Job[Item, Row, list[Hypothesis]]:
        manifest, pieces = self.manifest, self._pieces()
        resolved = resolve_options(manifest, options, pieces)
        own = values_of(manifest, lambda given: resolve_options(manifest, cast(Any, {**options, **given}), pieces))
        longest = manifest.inputs[manifest.written].longest
        run = partial(write_rows, manifest=manifest, tokenizer=self.tokenizer, options=resolved, constraint=constraint)
        if allowed is not None:
            check_allowed(manifest, numbers(resolved))
            run = partial(write_allowed, allowed=allowed, manifest=manifest, tokenizer=self.tokenizer, options=resolved)
        room = int(allowed is not None) if constraint is None else constraint.room
        size = partial(tokens_needed, inputs=manifest.given, options=resolved, longest=longest, room=room)
        return Job(
            rows_with_own(encode, own), size, with_token_scores(run, self._with_scores()) if token_scores else run
        )

    def _reader(self, batching: Batching, truncate: bool) -> Callable[[int, Example], Row]:
        inputs = self.manifest.given
        return partial(
            encode_example,
            inputs=inputs,
            words=self.manifest.labels_words,
            tokenizer=self._tokenizer_of(inputs),
            truncate=truncate,
            max_batch_tokens=batching.max_batch_tokens,
        )

    def _pieces(self) -> Pieces | None:
        """The pieces of the text that the engine writes; None if it has no tokenizer for it."""
        name = self.manifest.written
        return pieces_of(self.tokenizer, name, self.manifest.inputs[name].pieces)

    def _with_scores(self) -> Manifest:
        """Return the manifest. Raises: UserError if the engine has no scores of tokens."""
        self.manifest.require(SCORES_TEXTS)
        return self.manifest

    def _tokenizer_of(self, inputs: Mapping[str, Input]) -> Tokenizer | None:
        """The tokenizer of the inputs that are text; None if all of them are files."""
        files = [name for name, item in inputs.items() if suffixes_of(item)]
        rest = {name: item for name, item in inputs.items() if name not in files}
        return self._tokenizer(rest) if rest or not files else None

    def _tokenizer(self, inputs: Mapping[str, Input]) -> Tokenizer:
        others = [name for name, item in inputs.items() if item.kind != "tokens"]
        if others:
            method = TASKS[self.manifest.task].method
            raise UserError(
                f"the engine {self.manifest.name} takes more than text: it needs {', '.join(others)}",
                hint=f"give it arrays: engine.{method}({{name: array, ...}}), or xformc {method} ENGINE -i FILE.npz",
            )
        if self.tokenizer is None or not self.tokenizer.vocabularies.keys() >= inputs.keys():
            raise UserError(
                f"the engine {self.manifest.name} has no tokenizer",
                hint="build it from a run, or with tokenizers: xformc.build(..., tokenizers={input: file})",
            )
        return self.tokenizer


def check_method(manifest: Manifest, called: str, method: str) -> None:
    """Raises: UserError unless `method` is the one of the engine's task; `called` is what the user called."""
    right = TASKS[manifest.task].method
    if right != method:
        tasks = " or ".join(tasks_with(method))
        raise UserError(
            f"{manifest.name} is a {manifest.task} engine; {called} needs a {tasks} engine",
            hint=f"use engine.{right}(...) in Python, or xformc {right} on the command line",
        )


def refuse_idle(idle: Mapping[str, object]) -> None:
    """Raises: UserError for an argument of a call that batches which refill do not have."""
    for name, value in idle.items():
        if value is not None:
            raise UserError(f"{name} has no effect with slots", hint=f"leave out {name}, or slots")


def with_own(
    items: Iterable[Any], options: Mapping[str, Any], each: Iterable[Mapping[str, Any]] | None
) -> tuple[Any, Any]:
    """Return the items, with their own options if there are any, and the options that all of them share."""
    shared, lists = split_by_text(options)
    if not lists and each is None:
        return items, shared
    if isinstance(items, str):
        raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
    return asked(items, lists, each), shared
