"""Between the arrays of an engine and those of a search in fixed shapes: sizes that recur, padding, and cutting back.

A device keeps memory, and what it has captured, for each combination of sizes. So sizes are rounded up to a few;
rows that fill a batch repeat its last one, which is done when that is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import SAMPLING, SEARCH
from xformc.format.manifest import Input, SearchOptions
from xformc.format.plans import Profile, Range
from xformc.format.tokens import END, PAD
from xformc.runtime.devices.uniform import uniform_numbers
from xformc.runtime.search import length_limit
from xformc.runtime.session import Arrays

MULTIPLES = {"source": 16, "room": 32}
"""Axes whose sizes are rounded up to a multiple of this."""

_NEEDS = {
    "source": "a source of {} tokens",
    "beam": "a beam_size of {}",
    "room": "room for {} tokens",
    "batch": "a batch of {} rows",
}


class FixedShapes(Protocol):
    """Pads the inputs of a call to the shapes of `prepare` and `step`, and cuts their results back.

    Where an axis is in the `profile`, its size is between those there.
    """

    @property
    def results(self) -> Sequence[str]:
        """The names of the results, in the order of the engine's interface."""
        ...

    def padded(self, feeds: Arrays, profile: Profile) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """What is given to the models, and its sizes. Raises: UserError for feeds that need more than there may be."""
        ...

    def cut(self, feeds: Arrays, results: Arrays) -> list[NDArray[Any]]:
        """The results for these feeds, in order, without what was added to them."""
        ...


class BeamShapes:
    """Of translation: docs/engine.md. `longest` is the most tokens that the model can decode, or None."""

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
    """Of a language model: docs/engine.md. `longest` is the most positions that the model has, or None."""

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


def fixed_shapes(task: str, inputs: Mapping[str, Input]) -> FixedShapes:
    """How calls of an engine of this task, which decodes, and with these inputs are padded and cut."""
    if task == "translation":
        return BeamShapes(inputs["target"].longest)
    return SampleShapes(inputs["text"].longest)


def sizes_of(needed: Mapping[str, int], profile: Profile, longest: int | None) -> dict[str, int]:
    """The sizes of a search that needs so much, with room for `longest` positions at most, unless that is None.

    Raises: UserError if none that the profile allows will do.
    """
    most = {} if longest is None else {"room": longest}
    bounded = {axis: min(size, most.get(axis, size)) for axis, size in needed.items()}
    sizes = {axis: size_of(axis, size, profile.get(axis)) for axis, size in bounded.items()}
    return {axis: min(size, most.get(axis, size)) for axis, size in sizes.items()}


def size_of(axis: str, needed: int, allowed: Range | None) -> int:
    """The size that an axis gets where so much is needed: one of a few, of those that are allowed.

    A batch is rounded up by less than a quarter, to four sizes between a power of two and the next; a beam is not.

    Raises: UserError if none that is allowed will do.
    """
    multiple = 1 << max(0, needed.bit_length() - 3) if axis == "batch" else MULTIPLES.get(axis, 1)
    rounded = max(1, -(-needed // multiple)) * multiple
    if allowed is None:
        return rounded
    least, _, most = allowed
    if needed > most or (axis == "beam" and needed < least):
        built = f"{most}" if least == most else f"{least} to {most}"
        message = f"this call needs {_NEEDS[axis].format(needed)}, and the engine's plans were built for {built}"
        raise UserError(message, hint=_OTHER)
    return min(max(rounded, least), most)


def filled(array: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """The array [batch, n] as [rows, columns]: columns of padding come after its own, or are cut off; copies of its
    last row follow.
    """
    cut = array[:, :columns]
    wide = np.pad(cut, ((0, 0), (0, columns - cut.shape[1])))
    return np.pad(wide, ((0, rows - len(wide)), (0, 0)), mode="edge")


def parts_of(feeds: Arrays, profile: Profile) -> Iterator[Arrays]:
    """The feeds of as many rows of the batch at a time as there may be; they have the axis first, if they have axes."""
    rows = next(len(array) for array in feeds.values() if array.ndim)
    step = profile["batch"][2] if "batch" in profile else rows
    for start in range(0, rows, step):
        yield {name: array[start : start + step] if array.ndim else array for name, array in feeds.items()}


def joined(parts: Sequence[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """The results of parts as those of the whole: the tokens, which come first, padded to one length."""
    longest = max(tokens.shape[-1] for tokens, *_ in parts)
    return [
        np.concatenate([_longer(array, longest) if index == 0 else array for array in arrays])
        for index, arrays in enumerate(zip(*parts, strict=True))
    ]


def _longer(tokens: NDArray[Any], length: int) -> NDArray[Any]:
    return np.pad(tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, length - tokens.shape[-1])])


def _end_token(feeds: Arrays) -> Arrays:
    return {"end_token": feeds.get("end_token", np.array(END, np.int64))}


_OTHER = "ask for what it was built for, or rebuild the engine with another --profile"
