"""A search that the runtime drives: `prepare` once, then `step` on the device until nothing is left to do.

What a step leaves to the next stays on the device, in two sets of buffers: one step reads the first and writes the
second, the step after it the other way round. Both are bound once, and then only started.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.names import GO_ON, NEXT
from xformc.runtime.devices.device import Buffer, Call, Device, Model
from xformc.runtime.devices.fixed_shapes import FixedShapes, joined, parts_of
from xformc.runtime.devices.recent import Recent
from xformc.runtime.session import Arrays

KEPT = 8
"""For so many combinations of sizes a search is kept, with its buffers."""


class DrivenSearch:
    """An `Executor` that drives the searches of an engine on a device, one at a time."""

    def __init__(self, device: Device, shapes: FixedShapes) -> None:
        """`shapes` are those of the engine's `prepare` and `step`."""
        self._device, self._shapes = device, shapes
        self._searches = Recent[tuple[tuple[str, int], ...], _Search](KEPT)
        self._lock = threading.Lock()

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """See `Executor`."""
        return joined([self._run_part(part, options) for part in parts_of(feeds, self._device.profile)])

    def _run_part(self, feeds: Arrays, options: Any) -> list[NDArray[Any]]:
        inputs, sizes = self._shapes.padded(feeds, self._device.profile)
        with self._lock:
            search = self._searches.get(tuple(sorted(sizes.items())), lambda: _Search(*self._device.models(sizes)))
            results = search.run(inputs, self._shapes.results, sizes["room"], options)
        return self._shapes.cut(feeds, results)


class _Search:
    """The searches of certain sizes: the models, and the buffers between them."""

    def __init__(self, prepare: Model, step: Model) -> None:
        carried = [name.removesuffix(NEXT) for name in step.outputs if name.endswith(NEXT)]
        first = {name: prepare.buffer(name) for name in prepare.outputs}
        second = {name: step.buffer(name + NEXT) for name in carried}
        self._given = {name: prepare.buffer(name) for name in prepare.inputs}
        self._given |= {name: step.buffer(name) for name in step.inputs if name not in self._given | first}
        self._first, self._go_on = first, step.buffer(GO_ON)
        self._prepare = prepare.call(self._chosen(prepare, {**self._given, **first}))
        self._forth = self._bound(step, first, second)
        self._back = self._bound(step, {**first, **second}, first)

    def run(self, inputs: Arrays, results: Sequence[str], room: int, options: Any) -> Mapping[str, NDArray[Any]]:
        """The results for these inputs. Raises: UserError if the `options` say that the caller is gone."""
        for name, buffer in self._given.items():
            buffer.write(inputs[name])
        self._prepare.start()
        self._prepare.wait()
        for _ in range(0, room, 2):
            if options.terminate:
                raise UserError("the search was stopped")
            self._forth.start()
            self._back.start()  # if `forth` was the last step wanted, this one changes no result
            self._back.wait()
            if not self._go_on.read():
                break
        return {name: self._first[name].read() for name in results}

    def _bound(self, step: Model, now: Mapping[str, Buffer], following: Mapping[str, Buffer]) -> Call:
        """The step that reads what is carried from the buffers `now`, and writes it into those `following`."""
        written = {name: following[name.removesuffix(NEXT)] for name in step.outputs if name != GO_ON}
        return step.call(self._chosen(step, {**self._given, **now, **written, GO_ON: self._go_on}))

    @staticmethod
    def _chosen(model: Model, buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
        return {name: buffers[name] for name in (*model.inputs, *model.outputs)}
