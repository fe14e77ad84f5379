"""Continuations that an engine of a language model searches for, by a model of its own (docs/search.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from xformc.errors import UserError
from xformc.format.abilities import SEARCHES_PROMPTS
from xformc.format.interfaces import PROMPTS
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.names import BEAMS
from xformc.runtime.each import Asked, stack_options, values_of
from xformc.runtime.generation.generate import Continuation, Prompt, added_text, prompts_with_own
from xformc.runtime.generation.sampling import MAX_NEW_TOKENS, PromptArguments, SampleArguments
from xformc.runtime.job import Job
from xformc.runtime.options import (
    BeamArguments,
    EditArguments,
    FilterArguments,
    arrays,
    checked_integer,
    refuse_unknown,
    resolve_options,
)
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import search
from xformc.runtime.session import Session
from xformc.runtime.suppressed import Pieces
from xformc.runtime.text.tokenizer import Tokenizer

LIMIT = "max_length_offset"
"""The option of the search that `max_new_tokens` is."""


def searches(arguments: Mapping[str, Any], seed: object) -> bool:
    """Return whether a call searches, because it says how wide.

    Raises: UserError for an option of a search without it, and for one of sampling beside it; TypeError for an option
    that neither has.
    """
    refuse_unknown("generation", arguments, PromptArguments.__annotations__)
    given = {name for name, value in arguments.items() if value is not None}
    if "beam_size" not in given:
        if idle := [name for name in BeamArguments.__annotations__ if name in given]:
            message = f"{', '.join(idle)}: no effect on sampling"
            raise UserError(message, hint="say how many hypotheses to search with: beam_size=4")
        return False
    idle = [name for name in FilterArguments.__annotations__ if name in given] + ["seed"] * (seed != 0)
    if idle:
        raise UserError(f"{', '.join(idle)}: no effect on a search", hint=f"leave out {idle[0]}, or beam_size")
    return True


def sampling_alone(arguments: Mapping[str, Any]) -> SampleArguments:
    """Return the arguments without those of a search, none of which is given."""
    return cast(Any, {name: value for name, value in arguments.items() if name not in BeamArguments.__annotations__})


def refuse_beside_search(given: Mapping[str, object]) -> None:
    """Raises: UserError for an argument that a search for continuations does not have, which is None if not given."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name} has no effect on a search", hint=f"leave out {name}, or beam_size")


def resolve_beams(manifest: Manifest, arguments: Mapping[str, Any], pieces: Pieces | None = None) -> SearchOptions:
    """Complete the options of a search for continuations with the engine's defaults, and check them.

    Raises: UserError as `resolve_options`, and for an engine without such a search.
    """
    manifest.require(SEARCHES_PROMPTS)
    given = {name: value for name, value in arguments.items() if value is not None}
    idle = [name for name in given if name not in _KNOWN]
    if idle:
        raise UserError(f"{', '.join(idle)}: no effect on a search", hint=f"its options are {', '.join(_KNOWN)}")
    if "max_new_tokens" in given:
        given[LIMIT] = checked_integer("max_new_tokens", given.pop("max_new_tokens"), 0, 1, MAX_NEW_TOKENS)
    return resolve_options(replace(manifest, defaults=manifest.beams), cast(Any, given), pieces)


def searched_prompts(
    encode: Callable[[int, str], Prompt],
    arguments: Mapping[str, Any],
    *,
    manifest: Manifest,
    tokenizer: Tokenizer,
    pieces: Pieces | None,
) -> Job[str | Asked[str], Prompt, Continuation]:
    """Return the job that searches for the continuations of each prompt.

    Raises: UserError as `resolve_beams`.
    """
    options = resolve_beams(manifest, arguments, pieces)
    shared = dict(arguments)
    own = values_of(manifest, lambda given: resolve_beams(manifest, {**shared, **given}, pieces))
    encoded, name = prompts_with_own(encode, own), manifest.written

    def unseeded(line: int, item: Any) -> Prompt:
        if isinstance(item, Asked) and cast(Asked[str], item).options.get("seed") is not None:
            raise UserError("seed: no effect on a search", place=f"line {line}", hint="leave out seed, or beam_size")
        return encoded(line, item)

    def size(prompt: Prompt) -> int:
        return options.beam_size * (len(prompt.ids) + int(prompt.options.get(LIMIT, options.max_length_offset)))

    decode = partial(tokenizer.decode, name)
    vocabulary = manifest.inputs[name].pieces
    return Job(unseeded, size, partial(_run, options=options, vocabulary=vocabulary, decode=decode))


def _run(
    session: Session,
    prompts: Sequence[Prompt],
    *,
    options: SearchOptions,
    vocabulary: int,
    decode: Callable[[Sequence[int]], str],
) -> list[Continuation]:
    model = session.beside(BEAMS)
    assert model is not None, "the engine has no search for continuations"
    given = {PROMPTS: pad([prompt.ids for prompt in prompts], session.vocabularies.written.absent)}
    each = stack_options([prompt.options for prompt in prompts], arrays(options))
    found = search(model, given, options, vocabulary=vocabulary, each=each)
    results: list[Continuation] = []
    for row, prompt in enumerate(prompts):
        ranks = [rank for rank, score in enumerate(found.scores[row]) if rank == 0 or score > -np.inf]
        first, *others = (
            Continuation(added_text(decode, prompt.ids, tokens), float(found.scores[row, rank]), tokens)
            for rank, tokens in ((rank, found.text(row, rank)) for rank in ranks)
        )
        results.append(replace(first, others=tuple(others)))
    return results


_KNOWN = (*BeamArguments.__annotations__, "max_new_tokens", *EditArguments.__annotations__)
"""The options of a search for continuations."""
