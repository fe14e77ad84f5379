"""Which session an engine gets: the whole model or its steps, on the processor or on a GPU."""

from collections.abc import Mapping
from pathlib import Path

from xformc.errors import UserError
from xformc.runtime.device import DeviceName
from xformc.runtime.driven import DrivenSearch
from xformc.runtime.fixed import form_of
from xformc.runtime.interfaces import interface
from xformc.runtime.manifest import FIXED_TARGETS, Input, Target
from xformc.runtime.onnx_device import OnnxDevice
from xformc.runtime.session import Session
from xformc.runtime.whole import whole_session

DECODING = ("translation", "language_model")


def open_session(
    directory: Path,
    task: str,
    inputs: Mapping[str, Input],
    *,
    target: Target,
    threads: int | None = None,
    workers: int = 1,
    device: DeviceName | None = None,
) -> Session:
    """The session of the engine in this folder, with a task and inputs as its engine.json has them.

    `device` is where it is run, by default where engines of its `target` belong.

    Raises: UserError if it cannot be run there, or if a file is not what it should be.
    """
    face = interface(task, inputs)
    if target not in FIXED_TARGETS:
        if device == "cuda":
            raise UserError(
                f"an engine of target {target} runs on the processor",
                place=str(directory),
                hint="build it with --target cuda or --target tensorrt for a GPU",
            )
        return whole_session(directory, face, threads=threads, target=target, workers=workers)
    if task not in DECODING:
        return whole_session(directory, face, threads=threads, workers=workers)
    search = DrivenSearch(OnnxDevice(directory, "cpu", threads), form_of(task, inputs))
    return Session(lambda _: search, face.outputs, str(directory), workers)
