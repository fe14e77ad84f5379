"""Optimization profiles of TensorRT plans: the range of sizes of each axis, and the size to optimize for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, prod

from xformc.compiler.graph.lengths import Length
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.format.plans import KEYS, Profile, Range

BATCH = (1, 32, 128)
"""The range of the batch for any model, if the device's memory allows it."""

OFTEN = 32
"""The typical number of tokens of a sentence."""

ASSUMED_MEMORY = 16 * 2**30
"""Bytes of device memory if there is no device to query."""

LARGEST_TENSOR = 2**31 - 1
"""The largest number of elements of a tensor in TensorRT."""


@dataclass(frozen=True)
class Tensor:
    """An input of a model: the names or sizes of its axes, and the bytes per element."""

    axes: tuple[str | int, ...]
    item_size: int


def derive_profile(
    inputs: Mapping[str, Input],
    defaults: SearchOptions | SampleOptions | None,
    longest: int,
    written: str | None = None,
) -> dict[str, Range]:
    """The profile of an engine, by the names of its axes; `written` is the input that it writes.

    The maximum length of an input is the one that it declares, otherwise `longest`, the maximum length in training.
    `defaults` limit the length of outputs and the beam size.
    """
    given = {name: item for name, item in inputs.items() if name != written}
    lengths = {name: _range(OFTEN, longest, item.longest) for name, item in given.items() if item.is_sequence}
    keys = {f"{item.of}{KEYS}": lengths[item.of] for item in given.values() if item.kind == "edges" and item.of}
    room = {} if written is None or defaults is None else _room(defaults, lengths, longest, inputs[written].longest)
    return {"batch": BATCH, **lengths, **keys, **room}


def _room(
    defaults: SearchOptions | SampleOptions, lengths: Mapping[str, Range], longest: int, bound: int | None
) -> dict[str, Range]:
    """The ranges of the beam, for a search, and of the capacity, of which a text may take at most `bound`."""
    if isinstance(defaults, SampleOptions):
        new = defaults.max_new_tokens
        return {"room": _range(OFTEN + new, longest + new, bound)}
    _, *sizes = next(iter(lengths.values()), (0, 0, 0))
    often, most = (floor(defaults.max_length_factor * size) + defaults.max_length_offset for size in sizes)
    return {"beam": (1, defaults.beam_size, defaults.beam_size), "room": _range(often, most, bound)}


def _range(often: int, most: int, bound: int | None) -> Range:
    most = max(1, most if bound is None else min(most, bound))
    return 1, min(often, most), most


def parse_profile(text: str, derived: Profile) -> dict[str, Range]:
    """The derived profile with the axes that `text` names replaced: `batch=1:32:128,room=64` (64 is 64:64:64).

    The second axis of edges has the sizes of the first.

    Raises: UserError for unknown axes, or sizes that are not least:often:most.
    """
    keys = {f"{axis}{KEYS}": axis for axis in derived if f"{axis}{KEYS}" in derived}
    profile = {axis: sizes for axis, sizes in derived.items() if axis not in keys}
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\w+)=(\d{1,9})(?::(\d{1,9}):(\d{1,9}))?\s*", part)
        if found is None:
            raise UserError(f"--profile: '{part}' is not AXIS=LEAST:OFTEN:MOST", hint="for example batch=1:32:128")
        axis, first, *others = found.groups()
        sizes = [int(size) for size in (first, *others) if size is not None]
        least, often, most = sizes * 3 if len(sizes) == 1 else sizes
        if axis not in profile:
            raise UserError(f"--profile: there is no axis '{axis}'", hint=f"the axes are {', '.join(profile)}")
        if not 1 <= least <= often <= most:
            raise UserError(f"--profile: '{part.strip()}' must have 1 <= LEAST <= OFTEN <= MOST")
        profile[axis] = (least, often, most)
    return {**profile, **{name: profile[axis] for name, axis in keys.items()}}


def with_made_axes(profile: Profile, made: Iterable[tuple[str, Length]]) -> dict[str, Range]:
    """The profile with the axes that the model makes from those in it, such as every second position."""
    whole = dict(profile)
    for name, length in made:
        if whole.keys() >= set(length.of):
            least, often, most = (length.at({of: whole[of][at] for of in length.of}) for at in range(3))
            whole.setdefault(name, (least, often, most))
    return whole


def fit_batch(profile: Profile, step: Sequence[Tensor], memory: int) -> dict[str, Range]:
    """Halve the largest batch of the profile until the inputs and outputs of a step take at most half of the memory.

    The other half is for weights and for intermediate results of `prepare` and a step.

    Raises: UserError if even a batch of 1 does not fit.
    """
    fitted = dict(profile)
    while not _fits(fitted, step, memory):
        least, often, most = fitted["batch"]
        if most <= least:
            sizes = ", ".join(f"{axis} {largest:,}" for axis, (_, _, largest) in fitted.items())
            raise UserError(
                f"the states of a step do not fit in half of {memory / 2**30:.0f} GiB at {sizes}",
                hint="lower the limits: --profile room=1:64:128, or a shorter decode.max_length in the spec",
            )
        most = max(least, most // 2)
        fitted["batch"] = (least, min(often, most), most)
    return fitted


def _fits(profile: Profile, step: Sequence[Tensor], memory: int) -> bool:
    sizes = {axis: most for axis, (_, _, most) in profile.items()}
    counts = [(prod(axis if isinstance(axis, int) else sizes[axis] for axis in item.axes), item) for item in step]
    taken = sum(count * item.item_size for count, item in counts)
    return 2 * taken <= memory // 2 and all(count <= LARGEST_TENSOR for count, _ in counts)
