"""The options of the search, and their checks against an engine."""

from numbers import Integral
from typing import TypedDict

from xformc.errors import UserError
from xformc.format.manifest import MAX_FACTOR, MAX_OFFSET, MAX_PENALTY, Manifest, SearchOptions


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of a search; the engine's defaults replace missing arguments and None.

    beam_size: hypotheses kept for each sentence; 1 is greedy search. Time grows with it.
    n_best: translations returned for each sentence, best first; at most `beam_size`.
    length_penalty: GNMT's length penalty, the exponent in log probability / ((5 + length) / 6)^length_penalty;
        0 prefers short output, larger values longer output.
    max_length_factor, max_length_offset: a translation has at most
        floor(max_length_factor * source tokens) + max_length_offset tokens, and at least 1; end tokens
        are counted on both sides.
    min_length: a text does not end before it has this many tokens, the end token counted; 0 for any length. The
        maximum wins.
    """

    beam_size: int | None
    n_best: int | None
    length_penalty: float | None
    max_length_factor: float | None
    max_length_offset: int | None
    min_length: int | None


def resolve_options(manifest: Manifest, arguments: SearchArguments) -> SearchOptions:
    """Complete `arguments` with the engine's defaults, and check them.

    Raises: UserError that names the option, its allowed values and its value.
    """
    defaults = manifest.search
    unknown = set(arguments) - set(SearchArguments.__annotations__)
    if unknown:
        known = ", ".join(SearchArguments.__annotations__)
        raise TypeError(f"unknown search options: {', '.join(sorted(unknown))}; there are {known}")
    widest = max(1, manifest.inputs[manifest.written].pieces // 2)
    beam_size = checked_integer("beam_size", arguments.get("beam_size"), defaults.beam_size, 1, widest)
    n_best_default = min(defaults.n_best, beam_size)
    n_best = checked_integer("n_best", arguments.get("n_best"), n_best_default, 1, widest)
    if n_best > beam_size:
        raise UserError(
            f"n_best must be at most beam_size, which is {beam_size}, not {n_best}",
            hint=f"set beam_size to {n_best} or more",
        )
    factor = checked_number(
        "max_length_factor", arguments.get("max_length_factor"), defaults.max_length_factor, 0.0, MAX_FACTOR
    )
    offset = checked_integer(
        "max_length_offset", arguments.get("max_length_offset"), defaults.max_length_offset, 0, MAX_OFFSET
    )
    least = checked_integer("min_length", arguments.get("min_length"), defaults.min_length or 0, 0, MAX_OFFSET)
    if least and defaults.min_length is None:
        raise UserError(
            f"the search of {manifest.name} has no min_length",
            hint="rebuild it with `xformc build`; a search on a GPU has none yet",
        )
    penalty = arguments.get("length_penalty")
    return SearchOptions(
        beam_size=beam_size,
        n_best=n_best,
        length_penalty=checked_number("length_penalty", penalty, defaults.length_penalty, -MAX_PENALTY, MAX_PENALTY),
        max_length_factor=factor,
        max_length_offset=offset,
        min_length=None if defaults.min_length is None else least,
    )


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
