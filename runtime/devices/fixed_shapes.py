"""Pads the inputs of a search to fixed shapes, and cuts its results back.

A device keeps buffers and captured graphs for each combination of sizes, so sizes are rounded up to a few values. A
batch is filled with copies of its last row, which finish when that row does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import USUAL, Input, Vocabularies
from xformc.format.interfaces import END_TOKEN, RESULTS, SEARCH_OPTIONS
from xformc.format.manifest import SearchOptions
from xformc.format.plans import KEYS, Profile, Range
from xformc.format.results import Result, beside_text
from xformc.format.tasks import Decoding
from xformc.runtime.devices.uniform import uniform_numbers
from xformc.runtime.searching.search import length_limit, most_positions
from xformc.runtime.session import Arrays

MULTIPLES, POSITIONS = {"beam": 1, "room": 32}, 16
"""The multiple that the size of an axis is rounded up to; that of axes of positions."""

_NEEDS = {
    "source": "a source of {} tokens",
    "beam": "a beam_size of {}",
    "room": "a capacity of {} tokens",
    "batch": "a batch of {} rows",
}


class FixedShapes(Protocol):
    """Pads the inputs of a call to the shapes of `prepare` and `step`, and cuts their results back.

    The sizes of the axes in a `profile` stay within its ranges.
    """

    @property
    def results(self) -> Sequence[str]:
        """The names of the results, in the order of the engine's interface."""
        ...

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """Return the padded inputs and their sizes. Raises: UserError for feeds that exceed the profile."""
        ...

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """Return the results for these feeds, in order, without padding."""
        ...


class _Shapes:
    """The inputs that a call gives, and the results beside the text, which are computed once."""

    def __init__(
        self,
        longest: int | None,
        given: Mapping[str, Input],
        results: Mapping[str, Result],
        vocabularies: Vocabularies = USUAL,
    ) -> None:
        """`longest` is the maximum tokens of a text that the model can decode, or None; `given` are the inputs."""
        self._vocabularies = vocabularies
        self._given, self._beside = given, beside_text(results)
        self._axes = input_axes(given)
        limits = {name: item.longest for name, item in given.items()}
        self._most = {axis: most for axis, most in {"room": longest, **limits}.items() if most is not None}
        self.results = (*RESULTS, *(name for result in self._beside.values() for name in result.outputs))

    def _positions(self, feeds: Arrays) -> dict[str, int]:
        return {name: feeds[name].shape[1] for name, item in self._given.items() if item.is_sequence}

    def _sizes(self, needed: Mapping[str, int], profile: Profile) -> dict[str, int]:
        sizes = sizes_of(needed, profile, self._most)
        keys = {axis for axes in self._axes.values() for axis in axes if isinstance(axis, str) and axis not in sizes}
        return sizes | {axis: sizes[axis.removesuffix(KEYS)] for axis in keys}

    def _filled(self, feeds: Arrays, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        return {
            name: filled(
                feeds[name],
                [axis if isinstance(axis, int) else sizes[axis] for axis in axes],
                self._vocabularies.of(name).fill,
            )
            for name, axes in self._axes.items()
        }

    def _end_token(self, feeds: Arrays) -> Arrays:
        special = self._vocabularies.written
        return {END_TOKEN: feeds.get(END_TOKEN, np.array(special.as_input(special.end), np.int64))}

    def _others(self, feeds: Arrays, results: Arrays, rows: int) -> list[NDArray[Any]]:
        found: list[NDArray[Any]] = []
        for result in self._beside.values():
            for name in result.outputs:
                array = results[name][:rows]
                found.append(array if result.positions is None else array[:, : feeds[result.positions].shape[1]])
        return found


class BeamShapes(_Shapes):
    """The shapes of a beam search (docs/engine.md)."""

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """See `FixedShapes`."""
        given = {name: feeds[name] for name in self._axes}
        chosen = SearchOptions(**{name: feeds[name].item() for name in SEARCH_OPTIONS})
        room, rows = length_limit(chosen, most_positions(given, self._vocabularies)), len(next(iter(given.values())))
        needed = {"batch": rows, **self._positions(feeds), "beam": int(feeds["beam_size"]), "room": room}
        sizes = self._sizes(needed, profile)
        options = {name: feeds[name] for name in ("length_penalty", "max_length_factor", "max_length_offset")}
        places, ranks = (np.arange(sizes[axis]) for axis in ("room", "beam"))
        inputs = self._filled(feeds, sizes)
        return {**inputs, "places": places, "ranks": ranks, **options, **self._end_token(feeds)}, sizes

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """See `FixedShapes`."""
        count = len(feeds[next(iter(self._axes))])
        rows, best = slice(count), slice(int(feeds["n_best"]))
        tokens, lengths, scores = (results[name][rows, best] for name in RESULTS)
        return [tokens[:, :, : lengths.max()], lengths, scores, *self._others(feeds, results, count)]


class SampleShapes(_Shapes):
    """The shapes of sampling (docs/engine.md)."""

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """See `FixedShapes`."""
        prompt, seed, most = (feeds[name] for name in ("prompt", "seed", "max_new_tokens"))
        absent = self._vocabularies.written.absent
        positions = int((prompt != absent).sum(1).max(initial=0)) + int(most)
        sizes = self._sizes({"batch": len(prompt), **self._positions(feeds), "room": positions}, profile)
        options = {name: feeds[name] for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
        whole = (sizes["batch"], sizes["room"])
        given = {
            "prompt": filled(prompt, whole, absent),
            "draws": filled(uniform_numbers(seed, sizes["room"]), whole),
            "places": np.arange(sizes["room"]),
        }
        return {**self._filled(feeds, sizes), **given, **options, **self._end_token(feeds)}, sizes

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """See `FixedShapes`."""
        rows = len(feeds["prompt"])
        tokens, lengths, scores = (results[name][:rows] for name in RESULTS)
        return [tokens[:, : lengths.max()], lengths, scores, *self._others(feeds, results, rows)]


def fixed_shapes(
    decoding: Decoding,
    longest: int | None,
    given: Mapping[str, Input],
    results: Mapping[str, Result],
    vocabularies: Vocabularies = USUAL,
) -> FixedShapes:
    """Return the shapes of an engine with these results that writes text of at most `longest` tokens."""
    return (BeamShapes if decoding == "search" else SampleShapes)(longest, given, results, vocabularies)


def input_axes(given: Mapping[str, Input]) -> dict[str, tuple[str | int, ...]]:
    """Return the axes of each of the model's inputs for these of the spec: names, or sizes that never change."""
    axes: dict[str, tuple[str | int, ...]] = {}
    for name, item in given.items():
        along, inner = item.of or name, tuple(item.axes.values())
        if item.kind == "values":
            axes[name] = ("batch", *inner)
        elif item.kind == "edges":
            axes[name] = ("batch", along, f"{along}{KEYS}")
        else:
            axes[name] = ("batch", along, *inner)
        if item.kind == "vectors" and item.is_sequence:
            axes[f"{name}_mask"] = ("batch", name)
    return axes


def sizes_of(needed: Mapping[str, int], profile: Profile, most: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a search that needs at least `needed`; some axes have at most the sizes in `most`.

    Raises: UserError if the profile has no sizes that are large enough.
    """
    bounded = {axis: min(size, most.get(axis, size)) for axis, size in needed.items()}
    sizes = {axis: size_of(axis, size, profile.get(axis)) for axis, size in bounded.items()}
    return {axis: min(size, most.get(axis, size)) for axis, size in sizes.items()}


def size_of(axis: str, needed: int, allowed: Range | None) -> int:
    """Return the size of an axis that needs at least `needed`: one of a few values, within the range `allowed`.

    A batch is rounded up by less than a quarter: there are four sizes between one power of two and the next. A beam is
    not rounded.

    Raises: UserError if no allowed size is large enough.
    """
    multiple = 1 << max(0, needed.bit_length() - 3) if axis == "batch" else MULTIPLES.get(axis, POSITIONS)
    rounded = max(1, -(-needed // multiple)) * multiple
    if allowed is None:
        return rounded
    least, _, most = allowed
    if needed > most or (axis == "beam" and needed < least):
        built = f"{most}" if least == most else f"{least} to {most}"
        what = _NEEDS.get(axis, axis + " of {} positions").format(needed)
        message = f"this call needs {what}, but the engine's plans were built for {built}"
        raise UserError(message, hint=_OTHER)
    return min(max(rounded, least), most)


def filled(array: NDArray[Any], shape: Sequence[int], fill: int = 0) -> NDArray[Any]:
    """Return the array [batch, ..] in this shape: padded with `fill` or cut at the end of each axis, and filled with
    copies of its last row.
    """
    rows, *rest = shape
    cut = array[(slice(None), *map(slice, rest))]
    added = [(0, 0), *((0, size - found) for size, found in zip(rest, cut.shape[1:], strict=True))]
    wide = np.pad(cut, added, constant_values=fill)
    return np.pad(wide, [(0, rows - len(wide)), *((0, 0) for _ in rest)], mode="edge")


def parts_of(feeds: Arrays, profile: Profile) -> Iterator[Arrays]:
    """Yield the feeds in parts of at most the profile's batch size; the batch is the first axis of arrays with axes."""
    rows = next(len(array) for array in feeds.values() if array.ndim)
    step = profile["batch"][2] if "batch" in profile else rows
    for start in range(0, rows, step):
        yield {name: array[start : start + step] if array.ndim else array for name, array in feeds.items()}


def joined(parts: Sequence[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Join the results of parts; the tokens, which are the first result, are padded to one length."""
    longest = max(tokens.shape[-1] for tokens, *_ in parts)
    return [
        np.concatenate([_longer(array, longest) if index == 0 else array for array in arrays])
        for index, arrays in enumerate(zip(*parts, strict=True))
    ]


def _longer(tokens: NDArray[Any], length: int) -> NDArray[Any]:
    return np.pad(tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, length - tokens.shape[-1])])


_OTHER = "stay within these sizes, or rebuild the engine with another --profile"
