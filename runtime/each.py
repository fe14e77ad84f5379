"""Options with a value for each text: lists of values beside a list of texts, or options beside each text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import TAKES_OPTIONS_BY_TEXT
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.search_options import EDITS, SHAPES
from xformc.runtime.job import paired
from xformc.runtime.options import arrays
from xformc.runtime.rows import Row, pad

Item = TypeVar("Item")
Values = Mapping[str, NDArray[Any]]
"""The options of a text as inputs of the model, by name: a scalar each, or a list of tokens."""

NO_TOKEN = -1
"""What pads lists of suppressed tokens."""

_LISTS = frozenset(option.name for option in EDITS if option.several)
_NAMES = frozenset(
    name for kind in (SearchOptions, SampleOptions) for name in kind.__dataclass_fields__ if name not in SHAPES
)


@dataclass(frozen=True)
class Asked(Generic[Item]):
    """An item with options of its own, which win over those of the call."""

    item: Item
    options: Mapping[str, Any]


def split_by_text(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """Return the arguments with one value for all texts, and those with a list of values, one for each text."""
    lists = {name: value for name, value in arguments.items() if _is_by_text(name, value)}
    return {name: value for name, value in arguments.items() if name not in lists}, lists


def asked(
    items: Iterable[Item], lists: Mapping[str, Iterable[Any]], each: Iterable[Mapping[str, Any]] | None
) -> Iterator[Asked[Item]]:
    """Yield each item with its values of the `lists` by option, over which the options of `each` win.

    Raises: UserError at the first item without a value, and for values without an item.
    """
    found: Iterator[Asked[Item]] = (Asked(item, {}) for item in items)
    for name, values in lists.items():
        found = _with_values(found, name, values)
    return found if each is None else _with_options(found, each)


def _with_values(items: Iterator[Asked[Item]], name: str, values: Iterable[Any]) -> Iterator[Asked[Item]]:
    wrapped = ((value,) for value in values)
    for one, (value,) in paired(items, wrapped, none=f"is no {name}", several=f"values of {name}", one="a value"):
        yield Asked(one.item, {**one.options, name: value})


def _with_options(items: Iterator[Asked[Item]], each: Iterable[Mapping[str, Any]]) -> Iterator[Asked[Item]]:
    for one, options in paired(items, each, none="are no options", several="options", one="them"):
        yield Asked(one.item, {**one.options, **options})


def values_of(
    manifest: Manifest, resolve: Callable[[Mapping[str, Any]], SearchOptions | SampleOptions]
) -> Callable[[int, Mapping[str, Any]], Values]:
    """Return the function from a line and the options of its text to their values; `resolve` checks them.

    It raises UserError for an option that is wrong, that all texts of a call share, or that the engine has once.
    """

    def values(line: int, given: Mapping[str, Any]) -> Values:
        shared = [name for name in given if name in SHAPES]
        try:
            if shared:
                hint = "give it once for all of them: beside the texts, or to `serve`"
                raise UserError(f"{shared[0]} is one number for all texts", hint=hint)
            if given:
                manifest.require(TAKES_OPTIONS_BY_TEXT, ", ".join(given))
            return own_values(resolve(given)) if given else {}
        except UserError as error:
            error.place = error.place or f"line {line}"
            raise

    return values


def rows_with_own(
    encode: Callable[[int, Item], Row], values: Callable[[int, Mapping[str, Any]], Values]
) -> Callable[[int, Any], Row]:
    """Return the encoder of items, some of which may have options of their own; the row has their values."""

    def encoded(line: int, item: Any) -> Row:
        if not isinstance(item, Asked):
            return encode(line, item)
        one = cast(Asked[Item], item)
        return {**encode(line, one.item), **values(line, one.options)}

    return encoded


def options_in(row: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the options that a row has beside its inputs."""
    return {name: value for name, value in row.items() if name in _NAMES}


def with_values(options: SampleOptions, values: Values) -> SampleOptions:
    """Return the options of a call with those of one text."""
    return replace(options, **{name: tuple(map(int, one)) if one.ndim else one.item() for name, one in values.items()})


def own_values(options: SearchOptions | SampleOptions) -> Values:
    """Return the options of a text as inputs of the model: all but those that a batch shares."""
    return {name: value for name, value in arrays(options).items() if name not in SHAPES}


def stack_options(rows: Sequence[Mapping[str, NDArray[Any]]], usual: Values) -> dict[str, NDArray[Any]]:
    """Return the options of a batch, with a row for each of `rows` if any has options of its own; else none.

    usual: those of rows without any.
    """
    given = [options_in(row) for row in rows]
    if not any(given):
        return {}
    usual = {name: value for name, value in usual.items() if name not in SHAPES}
    every = [{**usual, **one} for one in given]
    return {name: _stacked(name, [one[name] for one in every]) for name in usual}


def _stacked(name: str, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return pad(cast(Any, values), NO_TOKEN) if name in _LISTS else np.stack(values)


def _is_by_text(name: str, value: object) -> bool:
    """Return whether a value is a list of values. A list of tokens is one value, and a list of lists is several."""
    if name in SHAPES or not isinstance(value, list | tuple):
        return False
    several = cast(Sequence[object], value)
    return name not in _LISTS or any(one is None or isinstance(one, list | tuple) for one in several)
