"""The interface of a device that a search is driven on: buffers, and models with fixed shapes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from xformc.format.plans import Profile

DeviceName = Literal["cpu", "cuda"]
"""The CPU, or an NVIDIA GPU."""

Sizes = Mapping[str, int]
"""The sizes of a search by axis name: `batch`, `room` (the capacity in tokens), the inputs with positions, and for
some `beam`."""


INPUT_AXES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("batch", "room"),
    "draws": ("batch", "room"),
    "places": ("room",),
    "ranks": ("beam",),
}
"""The axes of the inputs that the runtime feeds beside those of the spec; inputs that are not listed have none."""


class Buffer(Protocol):
    """An array in device memory, whose address does not change."""

    def write(self, array: NDArray[Any]) -> None:
        """Copy an array of the same shape and type to the device."""
        ...

    def read(self) -> NDArray[Any]:
        """Copy the array from the device, after all earlier work has finished."""
        ...


class Call(Protocol):
    """A model bound to the buffers that it reads and writes."""

    def start(self) -> None:
        """Start the computation; it runs after the earlier calls of the same search."""
        ...

    def wait(self) -> None:
        """Return when the computation has finished."""
        ...


class Model(Protocol):
    """A model on a device, for inputs of fixed sizes."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the inputs."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""
        ...

    def buffer(self, name: str) -> Buffer:
        """Allocate a buffer for the input or output `name`."""
        ...

    def call(self, buffers: Mapping[str, Buffer]) -> Call:
        """Bind the model to a buffer for each of its inputs and outputs."""
        ...


class Device(Protocol):
    """Runs an engine's `prepare` and `step` models."""

    @property
    def profile(self) -> Profile:
        """The range of sizes of each axis; axes that are not listed have no bounds."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether a step writes into its caches, so that each is read and written in one buffer."""
        ...

    def models(self, sizes: Sizes) -> tuple[Model, Model]:
        """Return `prepare` and `step` for inputs of these sizes."""
        ...
