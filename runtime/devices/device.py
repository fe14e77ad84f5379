"""What a device offers to a search that is driven on it: memory, and models for which every size is known."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from xformc.format.plans import Profile

DeviceName = Literal["cpu", "cuda"]
"""The processor, or an NVIDIA GPU."""

Sizes = Mapping[str, int]
"""The sizes of a search by the names of the models' axes: `batch`, `room`, and for some `source` and `beam`."""


INPUT_AXES: Mapping[str, tuple[str, ...]] = {
    "source": ("batch", "source"),
    "prompt": ("batch", "room"),
    "draws": ("batch", "room"),
    "places": ("room",),
    "ranks": ("beam",),
}
"""The axes of the inputs that a runtime gives; those that are not here have none."""


class Buffer(Protocol):
    """An array in the memory of a device, at one place for as long as it lives."""

    def write(self, array: NDArray[Any]) -> None:
        """Copy an array of the same shape and type to the device."""
        ...

    def read(self) -> NDArray[Any]:
        """Copy it from the device, when all that was started before is done."""
        ...


class Call(Protocol):
    """A model with the buffers that it reads and writes."""

    def start(self) -> None:
        """Have it computed, after all calls of the same search that were started before."""
        ...

    def wait(self) -> None:
        """Return when it is done."""
        ...


class Model(Protocol):
    """A model on a device, for inputs of certain sizes."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the inputs."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""
        ...

    def buffer(self, name: str) -> Buffer:
        """New memory for the input or output of this name."""
        ...

    def call(self, buffers: Mapping[str, Buffer]) -> Call:
        """The model bound to a buffer for each of its inputs and outputs."""
        ...


class Device(Protocol):
    """Where an engine's `prepare` and `step` are run."""

    @property
    def profile(self) -> Profile:
        """Between which sizes of each axis the models run; an axis that is not there has no bounds."""
        ...

    def models(self, sizes: Sizes) -> tuple[Model, Model]:
        """`prepare` and `step` for inputs of these sizes."""
        ...
