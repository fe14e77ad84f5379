"""The options of the search, and their checks against an engine."""

from numbers import Integral
from typing import Any, TypedDict

from xformc.errors import UserError
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.search_options import OPTIONS, PRESETS, PenaltyKind, Preset, SearchOption, StopRule


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of a search; the engine's defaults replace missing arguments and None.

    beam_size: hypotheses kept for each sentence; 1 is greedy search. Time grows with it.
    n_best: translations returned for each sentence, best first; at most `beam_size`.
    length_penalty: the exponent of the length penalty, by which a log probability is divided: 0 prefers short output,
        larger values longer output.
    length_penalty_kind: gnmt: ((5 + length) / 6)^length_penalty; average: length^length_penalty.
    max_length_factor, max_length_offset: a translation has at most
        floor(max_length_factor * source tokens) + max_length_offset tokens, and at least 1; end tokens
        are counted on both sides.
    min_length: a text does not end before it has this many tokens, the end token counted; 0 for any length. The
        maximum wins.
    stop_rule: when the search of a text is done, unless at its maximum. first: beam_size hypotheses have finished.
        best: so many have, and none of the others would be among the best if it ended now. complete: none of the others
        can be, however they go on. shrink: each finished hypothesis makes the beam narrower by one, until none is open.
    patience: with `first`, wait for patience * beam_size hypotheses, rounded.
    preset: the length penalty and the stop rule of `PRESETS`, a paper or another library, instead of the engine's.
    """

    beam_size: int | None
    n_best: int | None
    length_penalty: float | None
    max_length_factor: float | None
    max_length_offset: int | None
    min_length: int | None
    length_penalty_kind: PenaltyKind | None
    stop_rule: StopRule | None
    patience: float | None
    preset: Preset | None


def resolve_options(manifest: Manifest, arguments: SearchArguments) -> SearchOptions:
    """Complete `arguments` with the engine's defaults, and check them.

    Raises: UserError that names the option, its allowed values and its value.
    """
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    if "preset" in given:
        given = {**PRESETS[checked_word("preset", given.pop("preset"), tuple(PRESETS))], **given}
    unknown = set(arguments) - set(SearchArguments.__annotations__)
    if unknown:
        known = ", ".join(SearchArguments.__annotations__)
        raise TypeError(f"unknown search options: {', '.join(sorted(unknown))}; there are {known}")
    widest = max(1, manifest.inputs[manifest.written].pieces // 2)
    chosen = {option.name: _resolve(option, given.get(option.name), manifest, widest) for option in OPTIONS}
    beam_size, n_best = chosen["beam_size"], chosen["n_best"]
    if "n_best" not in given:
        chosen["n_best"] = min(n_best, beam_size)
    elif n_best > beam_size:
        raise UserError(
            f"n_best must be at most beam_size, which is {beam_size}, not {n_best}",
            hint=f"set beam_size to {n_best} or more",
        )
    return SearchOptions(**chosen)


def _resolve(option: SearchOption, given: object, manifest: Manifest, widest: int) -> Any:
    """Return what is given for an option, or else the engine's default; None if the engine lacks it."""
    name, default = option.name, getattr(manifest.search, option.name)
    if given is None:
        return default
    if option.words:
        value: object = checked_word(name, given, tuple(option.words))
    elif option.dtype == "int64":
        value = checked_integer(name, given, 0, int(option.low), widest if option.high is None else int(option.high))
    else:
        value = checked_number(name, given, 0, option.low, float(option.high or 0))
    if default is not None:
        return value
    if value != option.absent:
        raise UserError(
            f"the search of {manifest.name} has no {name}",
            hint="rebuild it with `xformc build`; a search on a GPU has none yet",
        )
    return None


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
