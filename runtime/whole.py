"""Runs the whole model in one ONNX Runtime session: a search with all its steps is one call."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import USUAL, Vocabularies
from xformc.format.interfaces import Interface
from xformc.format.names import MODEL
from xformc.format.targets import Target
from xformc.runtime.devices.fixed_shapes import FixedShapes
from xformc.runtime.results import REBUILD
from xformc.runtime.session import Arrays, Session, open_model, ranks_of, thread_count, with_rows


class WholeModel:
    """An `Executor` of a model that is one call: model.onnx, or that of the results of a written text.

    Each worker uses one of the `threads`, and all workers share the rest, so that no core runs more than one thread.
    """

    def __init__(
        self,
        path: Path,
        interface: Interface,
        workers: int = 1,
        *,
        threads: int | None = None,
        target: Target = "portable",
        providers: Sequence[Any] = ("CPUExecutionProvider",),
    ) -> None:
        self._place, self._interface = str(path), interface
        count = max(1, thread_count(threads) - workers + 1)
        self._session = open_model(path, count, target, providers=providers)
        self._ranks = ranks_of(self._session)
        self._check_interface()

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """See `Executor`."""
        return self._session.run(self._interface.outputs, with_rows(feeds, self._ranks), options)

    def _check_interface(self) -> None:
        optional = {value.name for value in self._session.get_overridable_initializers()}
        inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name for value in self._session.get_outputs()}
        missing = [name for name in self._interface.inputs if name not in inputs | optional]
        missing += [name for name in self._interface.outputs if name not in outputs]
        strange = sorted(inputs - set(self._interface.inputs))
        if missing or strange:
            problem = [f"it lacks {', '.join(missing)}"] * bool(missing)
            problem += [f"it needs {', '.join(strange)}"] * bool(strange)
            raise UserError(f"not an xformc model: {' and '.join(problem)}", place=self._place, hint=REBUILD)


class WholeSearch:
    """An `Executor` of the model.onnx of a search in fixed shapes, on the CPU."""

    def __init__(self, directory: Path, shapes: FixedShapes) -> None:
        """`shapes` pads the model's inputs."""
        self._shapes, self._session = shapes, open_model(directory / MODEL)
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """See `Executor`."""
        inputs, _ = self._shapes.padded(feeds, {})
        results = self._session.run(list(self._shapes.results), {name: inputs[name] for name in self._inputs}, options)
        return self._shapes.cut(feeds, dict(zip(self._shapes.results, results, strict=True)))


def whole_session(  # noqa: PLR0913 (each is a part of an engine)
    directory: Path,
    interface: Interface,
    *,
    file: str = MODEL,
    threads: int | None = None,
    target: Target = "portable",
    workers: int = 1,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    of_text: Session | None = None,
    vocabularies: Vocabularies = USUAL,
    others: Mapping[str, Callable[[int], Session]] = MappingProxyType({}),
    require_unchanged: Callable[[], None] = lambda: None,
) -> Session:
    """Open the session of a model in this folder, by default on the CPU.

    See `Session` for `of_text`, `vocabularies`, `others` and `require_unchanged`.

    Raises: UserError if ONNX Runtime rejects the model, or if the model has another interface.
    """
    path = directory / file
    make = partial(WholeModel, path, interface, threads=threads, target=target, providers=providers)
    parts = (make, interface.outputs, str(path), workers, of_text, vocabularies)
    return Session(*parts, others=others, require_unchanged=require_unchanged)
