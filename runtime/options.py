"""The options of the search, and their checks against an engine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from numbers import Integral
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError, suggest
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions, numbers
from xformc.format.search_options import EDITS, OPTIONS, PRESETS, PenaltyKind, Preset, SearchOption, StopRule
from xformc.format.targets import BUILD_FOR_CPUS
from xformc.runtime.suppressed import Pieces, checked_tokens

T = TypeVar("T")
ByText = T | Sequence[T | None] | None
"""The value of an option, or a list with a value for each text; None for the engine's default."""


class EditArguments(TypedDict, total=False):
    """The keyword arguments that edit the scores of tokens, in a search and in sampling (docs/search.md).

    suppress_tokens: tokens that are never written: ids, or pieces as the vocabulary has them, such as "<unk>".
    no_repeat_ngram_size: no sequence of this many tokens occurs twice in a text; 0 for no such rule.
    repetition_penalty: above 1, makes tokens that the text already has less likely (Keskar et al. 2019, section 4.1).
    presence_penalty: is subtracted from the score of each token that the text already has.
    frequency_penalty: is subtracted once for each time that the text already has the token.
    """

    suppress_tokens: Sequence[int | str] | Sequence[Sequence[int | str] | None] | None
    no_repeat_ngram_size: ByText[int]
    repetition_penalty: ByText[float]
    presence_penalty: ByText[float]
    frequency_penalty: ByText[float]


class BeamArguments(TypedDict, total=False):
    """The keyword arguments of a beam search, of texts as of continuations; see `SearchArguments`.

    beam_size: hypotheses kept for each sentence; 1 is greedy search. Time grows with it.
    n_best: texts returned for each sentence, best first; at most `beam_size`.
    length_penalty: the exponent of the length penalty, by which a log probability is divided: 0 prefers short output,
        larger values longer output.
    length_penalty_kind: gnmt: ((5 + length) / 6)^length_penalty; average: length^length_penalty.
    min_length: a text does not end before it has this many tokens, the end token counted; 0 for any length. The
        maximum wins.
    stop_rule: when the search of a text is done, unless at its maximum. first: beam_size hypotheses have finished.
        best: so many have, and none of the others would be among the best if it ended now. complete: none of the others
        can be, however they go on. shrink: each finished hypothesis makes the beam narrower by one, until none is open.
    patience: with `first`, wait for patience * beam_size hypotheses, rounded.
    preset: the length penalty and the stop rule of `PRESETS`, a paper or another library, instead of the engine's.
    beam_groups: groups of the beam that search one after the other (Vijayakumar et al. 2018); must divide `beam_size`.
    diversity_penalty: is subtracted from the score of a token in a group for each hypothesis of earlier groups that
        goes on with it.
    """

    beam_size: int | None
    n_best: int | None
    length_penalty: ByText[float]
    min_length: ByText[int]
    length_penalty_kind: ByText[PenaltyKind]
    stop_rule: ByText[StopRule]
    patience: ByText[float]
    preset: ByText[Preset]
    beam_groups: int | None
    diversity_penalty: ByText[float]


class SearchArguments(BeamArguments, EditArguments, total=False):
    """The keyword arguments of a search; the engine's defaults replace missing arguments and None.

    All but beam_size, n_best and beam_groups may be a list with a value for each text.

    max_length_factor, max_length_offset: a translation has at most
        floor(max_length_factor * source tokens) + max_length_offset tokens, and at least 1; end tokens
        are counted on both sides.
    prefix_bias: do not force the prefix: its tokens have this share of the probability, 0 to 0.999, beside their own,
        while a text follows it; 0 forces them.
    coverage_penalty: the weight in the score of a text of how much of the source it has looked at (Wu et al. 2016,
        equation 14); 0 for none. The spec of the engine must ask for it by `decode: {coverage: ..}`.

    The others are in `BeamArguments`, and those that edit the scores of tokens in `EditArguments`.
    """

    max_length_factor: ByText[float]
    max_length_offset: ByText[int]
    prefix_bias: ByText[float]
    coverage_penalty: ByText[float]


class FilterArguments(TypedDict, total=False):
    """The keyword arguments that say among which tokens samples are drawn; see `SampleArguments`."""

    temperature: ByText[float]
    top_k: ByText[int]
    top_p: ByText[float]


class TranslationArguments(SearchArguments, FilterArguments, total=False):
    """The keyword arguments of a translation: those of a search, or, with `samples`, of samples."""


def resolve_options(manifest: Manifest, arguments: SearchArguments, pieces: Pieces | None = None) -> SearchOptions:
    """Complete `arguments` with the engine's defaults, and check them; `pieces` are those of the written text.

    Raises: UserError that names the option, its allowed values and its value.
    """
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    if "preset" in given:
        given = {**PRESETS[checked_word("preset", given.pop("preset"), tuple(PRESETS))], **given}
    refuse_unknown("search", arguments, _KNOWN)
    asked = (option for option in OPTIONS if option.name in given)
    own = {option.name: _resolve(option, given[option.name], manifest, pieces) for option in asked}
    usual = cast(SearchOptions, manifest.defaults)
    chosen = replace(usual, **own) if own else usual
    beam_size, n_best = chosen.beam_size, chosen.n_best
    if n_best > beam_size and "n_best" in given:
        raise UserError(
            f"n_best must be at most beam_size, which is {beam_size}, not {n_best}",
            hint=f"set beam_size to {n_best} or more",
        )
    if n_best > beam_size:
        chosen = replace(chosen, n_best=beam_size)
    if beam_size % (chosen.beam_groups or 1):
        raise UserError(
            f"beam_groups must divide beam_size, which is {beam_size}, not {chosen.beam_groups}",
            hint="each group has beam_size / beam_groups hypotheses",
        )
    check_suppressed(manifest, chosen.suppress_tokens, manifest.inputs[manifest.written].special.choices * beam_size)
    return chosen


def refuse_unknown(kind: str, arguments: Collection[str], known: Collection[str]) -> None:
    """Raises: TypeError for arguments that are no options of this kind, with the one that is probably meant."""
    unknown = sorted(name for name in arguments if name not in known)
    if unknown:
        meant = suggest(unknown[0], known)
        message = f"unknown {kind} options: {', '.join(unknown)}; there are {', '.join(known)}"
        raise TypeError(f"{message}; {meant}" if meant else message)


_KNOWN = SearchArguments.__annotations__ | EditArguments.__annotations__


def resolve_edits(manifest: Manifest, arguments: Mapping[str, Any], pieces: Pieces | None = None) -> dict[str, Any]:
    """Complete those of `arguments` that edit the scores of tokens with the engine's defaults, and check them.

    Raises: UserError as `resolve_options`.
    """
    chosen = {option.name: _resolve(option, arguments.get(option.name), manifest, pieces) for option in EDITS}
    check_suppressed(manifest, chosen["suppress_tokens"], 1)
    return chosen


def arrays(options: SearchOptions | SampleOptions) -> dict[str, NDArray[Any]]:
    """The options as inputs of the model: float32 for numbers, int64 for integers and tokens. They may be read-only."""
    return _arrays(options) if isinstance(options, SampleOptions) else dict(_search_arrays(options))


@lru_cache(maxsize=64)
def _search_arrays(options: SearchOptions) -> dict[str, NDArray[Any]]:
    """Those of the last searches are kept, since a call for one sentence needs them twice."""
    made = _arrays(options)
    for array in made.values():
        array.setflags(write=False)
    return made


def _arrays(options: SearchOptions | SampleOptions) -> dict[str, NDArray[Any]]:
    given = numbers(options).items()
    return {name: np.array(value, np.float32 if isinstance(value, float) else np.int64) for name, value in given}


def check_suppressed(manifest: Manifest, tokens: tuple[int, ...] | None, rest: int) -> None:
    """Raises: UserError unless the tokens are of the vocabulary, and leave enough others."""
    size = manifest.inputs[manifest.written].pieces
    if max(tokens or (0,)) >= size:
        raise UserError(f"suppress_tokens must be ids from 0 to {size - 1}, not {max(tokens or (0,))}")
    if len(tokens or ()) > max(0, size - rest):
        message = f"suppress_tokens has {len(tokens or ()):,} of the {size:,} tokens of the vocabulary"
        raise UserError(f"{message}; at least {rest} must be left")


def _resolve(option: SearchOption, given: object, manifest: Manifest, pieces: Pieces | None) -> Any:
    """Return what is given for an option, or else the engine's default; None if the engine lacks it."""
    name, default = option.name, getattr(manifest.defaults, option.name)
    if given is None:
        return default
    if option.several:
        value: object = checked_tokens(name, given, manifest.inputs[manifest.written].pieces, pieces)
    elif option.words:
        value = checked_word(name, given, tuple(option.words))
    elif option.dtype == "int64":
        written = manifest.inputs[manifest.written]
        widest = written.special.widest(written.pieces)
        value = checked_integer(name, given, 0, int(option.low), widest if option.high is None else int(option.high))
    else:
        value = checked_number(name, given, 0, option.low, float(option.high or 0))
    if default is not None:
        return value
    if value != option.absent:
        raise UserError(
            f"the {'sampling' if manifest.decoding == 'sample' else 'search'} of {manifest.name} has no {name}",
            hint=_HINTS.get(name, BUILD_FOR_CPUS),
        )
    return None


_HINTS = {"coverage_penalty": "set decode: coverage in its spec and build it again, not for a GPU"}
"""What to do about an option that an engine lacks, where it is not a new build alone."""


def checked_word(name: str, value: object, words: tuple[str, ...]) -> str:
    """Return the value. Raises: UserError unless it is one of the words."""
    if value not in words:
        raise UserError(f"{name} must be {' or '.join(words)}, not {value!r}")
    return str(value)


def checked_integer(name: str, value: object, default: int, low: int, high: int) -> int:
    """Return the value, or the default for None. Raises: UserError unless it is an integer from `low` to `high`."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise UserError(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return int(value)


def checked_number(name: str, value: object, default: float, low: float, high: float) -> float:
    """Return the value, or the default for None. Raises: UserError unless it is a number from `low` to `high`."""
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
    return float(value)
