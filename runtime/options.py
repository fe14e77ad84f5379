"""The options of the search: what a call may set, and which values make sense for an engine."""

from typing import TypedDict

from xformc.errors import UserError
from xformc.format.manifest import MAX_FACTOR, MAX_OFFSET, MAX_PENALTY, Manifest, SearchOptions


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of a search; what is left out or None is the engine's default.

    beam_size: partial translations kept for each sentence; 1 is greedy search. Time grows with it.
    n_best: translations returned for each sentence, best first; at most `beam_size`.
    length_penalty: the exponent in score = log probability / ((5 + length) / 6)^length_penalty; 0 prefers
        short output, more prefers longer.
    max_length_factor, max_length_offset: a translation has at most
        floor(max_length_factor * source tokens) + max_length_offset tokens, and at least 1; the end
        tokens are counted on both sides.
    """

    beam_size: int | None
    n_best: int | None
    length_penalty: float | None
    max_length_factor: float | None
    max_length_offset: int | None


def resolve_options(manifest: Manifest, arguments: SearchArguments) -> SearchOptions:
    """Fill what `arguments` leaves open with the engine's defaults, and check the whole.

    Raises: UserError naming the option, what it must be, and what it is.
    """
    defaults = manifest.search
    unknown = set(arguments) - set(SearchArguments.__annotations__)
    if unknown:
        raise TypeError(f"unknown search options: {', '.join(sorted(unknown))}")
    widest = max(1, manifest.inputs["target"].pieces // 2)
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
    penalty = arguments.get("length_penalty")
    return SearchOptions(
        beam_size=beam_size,
        n_best=n_best,
        length_penalty=checked_number("length_penalty", penalty, defaults.length_penalty, -MAX_PENALTY, MAX_PENALTY),
        max_length_factor=factor,
        max_length_offset=offset,
    )


def checked_integer(name: str, value: object, default: int, low: int, high: int) -> int:
    """The value, or the default for None. Raises: UserError unless it is an integer from `low` to `high`."""
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value


def checked_number(name: str, value: object, default: float, low: float, high: float) -> float:
    """The value, or the default for None. Raises: UserError unless it is a number from `low` to `high`."""
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
    return float(value)
