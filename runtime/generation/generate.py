"""Generates continuations of texts with a language model's engine, which samples inside its ONNX model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import END_TOKEN
from xformc.format.manifest import SampleOptions
from xformc.runtime.each import Asked, Values, stack_options
from xformc.runtime.options import arrays
from xformc.runtime.results import Expected, up_to
from xformc.runtime.rows import pad
from xformc.runtime.session import Session
from xformc.runtime.text.texts import Limit, encode_line
from xformc.runtime.text.tokenizer import Tokenizer

MAX_SEED = 2**62


@dataclass(frozen=True)
class SampleResult:
    """The continuation of each prompt.

    tokens: [batch, length] int64, the sampled tokens, the end token included, then 0.
    lengths: [batch] int64, the number of tokens of each, the end token included.
    scores: [batch] float32, the model's log probability of each, without temperature and filters.
    others: the outputs of the engine's other results, by name.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    scores: NDArray[np.float32]
    others: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])


@dataclass(frozen=True)
class Prompt:
    """The token ids of a text to continue, without an end token, its random seed, and options of its own."""

    ids: Sequence[int]
    seed: int
    options: Values = field(default_factory=dict[str, NDArray[Any]])


@dataclass(frozen=True)
class Continuation:
    """The continuation of a prompt: the text to append, its log probability, and its token ids with the end token.

    `text` begins with a space if its first token begins a word. `token_scores` has the log probability of each token,
    if that was asked for. `others` are the next best continuations of a search with `n_best` above 1; its `score` is
    divided by the length penalty.
    """

    text: str
    score: float
    tokens: tuple[int, ...]
    token_scores: tuple[float, ...] = ()
    others: tuple["Continuation", ...] = ()

    def after(self, prompt: str) -> str:
        """The whole text: the prompt and its continuation, with one space between words."""
        return (prompt.rstrip() if self.text.startswith(" ") else prompt) + self.text


def sample(
    session: Session,
    prompts: Sequence[Prompt],
    options: SampleOptions,
    end: Sequence[int] = (),
    vocabulary: int | None = None,
    *,
    given: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    others: Mapping[str, Expected] = MappingProxyType({}),
) -> SampleResult:
    """Continue one or more prompts as one batch.

    `end` are the tokens that end a text, if not those of the engine; `vocabulary`, if known, is the number of tokens.
    `given` are the model's other inputs by name, batch first, padded at the end; `others` are further outputs.

    Raises: UserError if ONNX Runtime fails, or if the model's results are no continuations of these prompts.
    """
    special, usual = session.vocabularies.written, arrays(options)
    feeds = {
        **given,
        "prompt": pad([prompt.ids for prompt in prompts], special.absent),
        "seed": np.array([prompt.seed for prompt in prompts], np.int64),
        **usual,
        **stack_options([prompt.options for prompt in prompts], usual),
        **({END_TOKEN: np.array(special.as_input(end), np.int64)} if end else {}),
    }
    most, found = max(_most_new(prompt, options) for prompt in prompts), (len(prompts),)
    tokens = Expected(np.int64, (*found, up_to(most)), vocabulary)
    expected = (tokens, Expected(np.int64, found, most + 1), Expected(np.float32, found))
    tokens_found, lengths, scores, *rest = session.run(feeds, (*expected, *others.values()))
    return SampleResult(tokens_found, lengths, scores, dict(zip(others, rest, strict=True)))


def check_seed(seed: object, place: str | None = None) -> int:
    """Return the seed of a call, or of the text at a place. Raises: UserError unless it is from 0 to MAX_SEED."""
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UserError(f"seed must be an integer from 0 to {MAX_SEED}, not {seed!r}", place=place)
    return seed


def encode_prompt(
    line: int, text: str, *, name: str, tokenizer: Tokenizer, seed: int, limit: Limit, truncate: bool
) -> Prompt:
    """Return the prompt on this line for the input `name`. A text that is cut keeps its end.

    Raises: UserError for a text that is too long or is not valid Unicode, and for one without tokens if the engine
    needs one to begin with.
    """

    def encode(text: str) -> list[int]:
        return tokenizer.encode_open(name, text)

    ids = encode_line(line, text, encode=encode, limit=limit, truncate=truncate, tail=limit.tokens)
    if not ids and tokenizer.vocabularies[name].special.begin is None:
        message = "an empty prompt, and the vocabulary has no begin token"
        raise UserError(message, place=f"line {line}", hint="give the first word of the text")
    return Prompt(ids, seed + line - 1)


def prompts_with_own(
    encode: Callable[[int, str], Prompt], values: Callable[[int, Mapping[str, Any]], Values]
) -> Callable[[int, Any], Prompt]:
    """Return the encoder of prompts, some of which may have options of their own, among them `seed`."""

    def encoded(line: int, item: Any) -> Prompt:
        if not isinstance(item, Asked):
            return encode(line, item)
        one = cast(Asked[str], item)
        options = {name: value for name, value in one.options.items() if name != "seed"}
        prompt, seed = encode(line, one.item), one.options.get("seed")
        if seed is not None:
            prompt = replace(prompt, seed=check_seed(seed, f"line {line}"))
        return replace(prompt, options=values(line, options))

    return encoded


def continuation_needs(prompt: Prompt, *, options: SampleOptions) -> int:
    """Return the maximum number of tokens of the prompt and its continuation together."""
    return len(prompt.ids) + _most_new(prompt, options)


def _most_new(prompt: Prompt, options: SampleOptions) -> int:
    return int(prompt.options.get("max_new_tokens", options.max_new_tokens))


def continue_prompts(
    session: Session,
    prompts: Sequence[Prompt],
    *,
    name: str,
    tokenizer: Tokenizer,
    options: SampleOptions,
    vocabulary: int,
) -> list[Continuation]:
    """Continue the prompts for the input `name` as one batch, and return the continuations in order.

    `vocabulary` is the number of tokens.
    """
    found = sample(session, prompts, options, vocabulary=vocabulary)
    results: list[Continuation] = []
    for row, prompt in enumerate(prompts):
        tokens = tuple(int(token) for token in found.tokens[row, : found.lengths[row]])
        results.append(
            Continuation(
                added_text(partial(tokenizer.decode, name), prompt.ids, tokens), float(found.scores[row]), tokens
            )
        )
    return results


def added_text(decode: Callable[[Sequence[int]], str], prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """Return the text that the tokens add to the prompt."""
    before, whole = decode(prompt), decode([*prompt, *tokens])
    return whole.removeprefix(before) if whole.startswith(before) else decode(tokens)
