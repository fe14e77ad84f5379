"""Drives a search on a device: runs `prepare` once, then `step` until the search is done.

The state of the search stays on the device in two sets of buffers. One step reads the first set and writes the second,
the next step does the reverse. Both are bound once, and then only started. Caches that steps write in place are the
same in both sets.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from xformc.format.names import CACHE, GO_ON, NEXT
from xformc.runtime.devices.device import Buffer, Call, Device, Model, Sizes
from xformc.runtime.devices.fixed_shapes import FixedShapes, joined, parts_of
from xformc.runtime.devices.recent import Recent
from xformc.runtime.session import Arrays, StoppedError

KEPT = 8
"""Number of combinations of sizes for which a search is kept with its buffers."""


class DrivenSearch:
    """An `Executor` that drives searches on a device, one at a time."""

    def __init__(self, device: Device, shapes: FixedShapes) -> None:
        """`shapes` pads the inputs of the engine's `prepare` and `step`."""
        self._device, self._shapes = device, shapes
        self._searches = Recent[tuple[tuple[str, int], ...], _Search](KEPT)
        self._lock = threading.Lock()

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """See `Executor`."""
        return joined([self._run_part(part, options) for part in parts_of(feeds, self._device.profile)])

    def _run_part(self, feeds: Arrays, options: Any) -> list[NDArray[Any]]:
        inputs, sizes = self._shapes.padded(feeds, self._device.profile)
        with self._lock:
            search = self._searches.get(tuple(sorted(sizes.items())), lambda: self._search(sizes))
            results = search.run(inputs, self._shapes.results, sizes["room"], options)
        return self._shapes.cut(feeds, results)

    def _search(self, sizes: Sizes) -> "_Search":
        return _Search(*self._device.models(sizes), in_place=self._device.in_place)


class _Search:
    """The models and buffers of searches of one combination of sizes."""

    def __init__(self, prepare: Model, step: Model, *, in_place: bool) -> None:
        carried = [name.removesuffix(NEXT) for name in step.outputs if name.endswith(NEXT)]
        first = {name: prepare.buffer(name) for name in prepare.outputs}
        kept = {name: first[name] for name in carried if in_place and name.startswith(f"{CACHE}_")}
        second = kept | {name: step.buffer(name + NEXT) for name in carried if name not in kept}
        self._given = {name: prepare.buffer(name) for name in prepare.inputs}
        self._given |= {name: step.buffer(name) for name in step.inputs if name not in self._given | first}
        self._first, self._go_on = first, step.buffer(GO_ON)
        self._prepare = prepare.call(self._chosen(prepare, {**self._given, **first}))
        self._forth = self._bound(step, first, second)
        self._back = self._bound(step, {**first, **second}, first)

    def run(self, inputs: Arrays, results: Sequence[str], room: int, options: Any) -> Mapping[str, NDArray[Any]]:
        """Return the results for these inputs. Raises: StoppedError if `options.terminate` is set."""
        try:
            for name, buffer in self._given.items():
                buffer.write(inputs[name])
            self._prepare.start()
            self._prepare.wait()
            for _ in range(0, room, 2):
                if options.terminate:
                    raise StoppedError("the search was stopped")
                self._forth.start()
                self._back.start()  # if `forth` was the last step needed, this one changes no result
                self._back.wait()
                if not self._go_on.read():
                    break
            return {name: self._first[name].read() for name in results}
        except BaseException:  # perhaps of a signal's handler, between a start and its wait
            for call in (self._prepare, self._forth, self._back):
                call.wait()
            raise

    def _bound(self, step: Model, now: Mapping[str, Buffer], following: Mapping[str, Buffer]) -> Call:
        """Bind the step to read its state from the buffers `now` and write it to `following`."""
        written = {name: following[name.removesuffix(NEXT)] for name in step.outputs if name != GO_ON}
        return step.call(self._chosen(step, {**self._given, **now, **written, GO_ON: self._go_on}))

    @staticmethod
    def _chosen(model: Model, buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
        return {name: buffers[name] for name in (*model.inputs, *model.outputs)}
