"""Pads the inputs of a search to fixed shapes, and cuts its results back.

A device keeps buffers and captured graphs for each combination of sizes, so sizes are rounded up to a few values. A
batch is filled with copies of its last row, which finish when that row does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import SAMPLING, SEARCH
from xformc.format.manifest import SearchOptions
from xformc.format.plans import Profile, Range
from xformc.format.tasks import Decoding
from xformc.format.tokens import END, PAD
from xformc.runtime.devices.uniform import uniform_numbers
from xformc.runtime.search import length_limit
from xformc.runtime.session import Arrays

MULTIPLES = {"source": 16, "room": 32}
"""The multiple that the size of an axis is rounded up to."""

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


class BeamShapes:
    """The shapes of translation (docs/engine.md). `longest` is the maximum tokens the model can decode, or None."""

    results = SEARCH.outputs

    def __init__(self, longest: int | None) -> None:
        self._longest = longest

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """See `FixedShapes`."""
        source = feeds["source"]
        chosen = SearchOptions(**{field.name: feeds[field.name].item() for field in fields(SearchOptions)})
        limit = length_limit(chosen, int((source != PAD).sum(1).max()))
        needed = {"batch": len(source), "source": source.shape[1], "beam": int(feeds["beam_size"]), "room": limit}
        sizes = sizes_of(needed, profile, self._longest)
        options = {name: feeds[name] for name in ("length_penalty", "max_length_factor", "max_length_offset")}
        places, ranks = (np.arange(sizes[axis]) for axis in ("room", "beam"))
        padded = filled(source, sizes["batch"], sizes["source"])
        return {"source": padded, "places": places, "ranks": ranks, **options, **_end_token(feeds)}, sizes

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """See `FixedShapes`."""
        rows, best = slice(len(feeds["source"])), slice(int(feeds["n_best"]))
        tokens, lengths, scores = (results[name][rows, best] for name in self.results)
        return [tokens[:, :, : lengths.max()], lengths, scores]


class SampleShapes:
    """The shapes of a language model (docs/engine.md). `longest` is the model's maximum positions, or None."""

    results = SAMPLING.outputs

    def __init__(self, longest: int | None) -> None:
        self._longest = longest

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """See `FixedShapes`."""
        prompt, seed, most = (feeds[name] for name in ("prompt", "seed", "max_new_tokens"))
        positions = int((prompt != PAD).sum(1).max()) + int(most)
        needed = {"batch": len(prompt), "room": positions}
        sizes = sizes_of(needed, profile, self._longest)
        options = {name: feeds[name] for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
        given = {
            "prompt": filled(prompt, sizes["batch"], sizes["room"]),
            "draws": filled(uniform_numbers(seed, sizes["room"]), sizes["batch"], sizes["room"]),
            "places": np.arange(sizes["room"]),
        }
        return {**given, **options, **_end_token(feeds)}, sizes

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """See `FixedShapes`."""
        tokens, lengths, scores = (results[name][: len(feeds["prompt"])] for name in self.results)
        return [tokens[:, : lengths.max()], lengths, scores]


def fixed_shapes(decoding: Decoding, longest: int | None) -> FixedShapes:
    """Return the shapes of an engine that writes text of at most `longest` tokens."""
    return BeamShapes(longest) if decoding == "search" else SampleShapes(longest)


def sizes_of(needed: Mapping[str, int], profile: Profile, longest: int | None) -> dict[str, int]:
    """Return the sizes of a search that needs at least `needed`; the room is at most `longest`, unless that is None.

    Raises: UserError if the profile has no sizes that are large enough.
    """
    most = {} if longest is None else {"room": longest}
    bounded = {axis: min(size, most.get(axis, size)) for axis, size in needed.items()}
    sizes = {axis: size_of(axis, size, profile.get(axis)) for axis, size in bounded.items()}
    return {axis: min(size, most.get(axis, size)) for axis, size in sizes.items()}


def size_of(axis: str, needed: int, allowed: Range | None) -> int:
    """Return the size of an axis that needs at least `needed`: one of a few values, within the range `allowed`.

    A batch is rounded up by less than a quarter: there are four sizes between one power of two and the next. A beam is
    not rounded.

    Raises: UserError if no allowed size is large enough.
    """
    multiple = 1 << max(0, needed.bit_length() - 3) if axis == "batch" else MULTIPLES.get(axis, 1)
    rounded = max(1, -(-needed // multiple)) * multiple
    if allowed is None:
        return rounded
    least, _, most = allowed
    if needed > most or (axis == "beam" and needed < least):
        built = f"{most}" if least == most else f"{least} to {most}"
        message = f"this call needs {_NEEDS[axis].format(needed)}, but the engine's plans were built for {built}"
        raise UserError(message, hint=_OTHER)
    return min(max(rounded, least), most)


def filled(array: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Return the array [batch, n] as [rows, columns], padded with 0 or cut at the right and filled with copies of its
    last row.
    """
    cut = array[:, :columns]
    wide = np.pad(cut, ((0, 0), (0, columns - cut.shape[1])))
    return np.pad(wide, ((0, rows - len(wide)), (0, 0)), mode="edge")


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


def _end_token(feeds: Arrays) -> Arrays:
    return {"end_token": feeds.get("end_token", np.array(END, np.int64))}


_OTHER = "stay within these sizes, or rebuild the engine with another --profile"
