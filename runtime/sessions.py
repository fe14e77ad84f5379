"""Opens the session of an engine: the whole model or its steps, on the CPU or on a GPU."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from xformc.errors import UserError
from xformc.format.inputs import Input, vocabularies_of
from xformc.format.interfaces import (
    AT,
    CAPACITY,
    COUNT,
    DONE,
    DRAFTED,
    FROM,
    JOINING,
    KEPT,
    LEAST,
    LENGTHS,
    LIMIT,
    NEWEST,
    POOL,
    POSITIONS,
    PREFIX,
    PREFIX_SO_FAR,
    READ,
    SAMPLING_OPTIONS,
    SCORES_BY_STEP,
    SCORES_SO_FAR,
    SLOTS,
    STREAMED,
    Interface,
    given_inputs,
    interface,
    interface_of_alignments,
    interface_of_beams,
    interface_of_samples,
    interface_of_scores,
    interface_of_text,
)
from xformc.format.names import (
    ADVANCE,
    ALIGNMENTS,
    BEAMS,
    CACHES,
    CHECK,
    CONTINUE,
    JOIN,
    NEXT,
    OF_TEXT,
    PROMPT,
    REFILL,
    SAMPLES,
    SCORES,
)
from xformc.format.plans import Plan
from xformc.format.results import Result
from xformc.format.results import of_text as later
from xformc.format.targets import TRAITS, Target
from xformc.format.tasks import Decoding
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.devices.driven import DrivenSearch
from xformc.runtime.devices.fixed_shapes import fixed_shapes, input_axes
from xformc.runtime.devices.gpu import ON_THE_PROCESSOR, require_onnx_cuda, require_tensorrt
from xformc.runtime.devices.onnx import PROCESSOR, OnnxDevice, cuda_providers
from xformc.runtime.devices.tensorrt import PlanModel, TensorRTDevice
from xformc.runtime.session import Executor, Session
from xformc.runtime.stateful import StatefulModel
from xformc.runtime.whole import whole_session


def open_session(  # noqa: PLR0913 (each is a part of an engine)
    directory: Path,
    inputs: Mapping[str, Input],
    results: Mapping[str, Result],
    *,
    target: Target,
    decoding: Decoding,
    threads: int | None = None,
    workers: int = 1,
    device: DeviceName | None = None,
    plans: Mapping[str, Plan] = MappingProxyType({}),
    files: Collection[str] = (),
    require_unchanged: Callable[[], None] = lambda: None,
) -> Session:
    """Open the engine in this folder; the inputs, results, target, decoding and plans are those of its engine.json.

    device: the device to run on; by default that of the `target`.
    plans: TensorRT plans by file name.
    files: its files; those of OTHERS are models that are opened when they are first asked for.
    require_unchanged: raises UserError if the folder has another engine by then.

    Raises: UserError if the engine cannot run on the device, or if a file is invalid.
    """
    face, fixed, place = interface(inputs, results, decoding), TRAITS[target].fixed, str(directory)
    name: DeviceName = device or ("cuda" if fixed else "cpu")
    if name not in get_args(DeviceName):
        raise UserError(f"device is {name!r}", hint=f"use {' or '.join(get_args(DeviceName))}")
    if name == "cuda" and not fixed:
        hint = "build it with --target cuda or --target tensorrt for a GPU"
        raise UserError(f"an engine of target {target} runs only on the CPU", place=place, hint=hint)
    written = [name for name, result in results.items() if result.kind == "text"]
    given = given_inputs(inputs, results)
    vocabularies = vocabularies_of(inputs, written[0] if written else None)
    shapes = None
    if fixed and written:
        shapes = fixed_shapes(decoding, inputs[written[0]].longest, given, results, vocabularies)

    providers = PROCESSOR if name == "cpu" else cuda_providers({})
    open_whole = partial(whole_session, directory, threads=threads, target=target, workers=workers, providers=providers)
    of_text = None
    if later(results):
        of_text = open_whole(interface_of_text(inputs, results), file=OF_TEXT)

    def open_other(file: str, workers: int) -> Session:
        return open_whole(OTHERS[file](inputs, results), file=file, workers=workers, vocabularies=vocabularies)

    def shared(executor: Executor) -> Session:
        return Session(lambda _: executor, face.outputs, place, workers, of_text, vocabularies)

    if name == "cuda" and TRAITS[target].plans:
        if not plans:
            raise UserError("this engine has no TensorRT plans", place=place, hint=f"{_PLANS}, {ON_THE_PROCESSOR}")
        tensorrt, profile = require_tensorrt(plans, place), next(iter(plans.values())).profile
        if shapes is None:
            return shared(PlanModel(directory, tensorrt, profile, face.outputs))
        return shared(DrivenSearch(TensorRTDevice(directory, tensorrt, profile, input_axes(given)), shapes))
    if name == "cuda":
        require_onnx_cuda(place)
    if shapes is not None:
        return shared(DrivenSearch(OnnxDevice(directory, name, threads, in_place=TRAITS[target].in_place), shapes))

    def open_stateful(file: str, workers: int) -> Session:
        path = directory / file
        make = partial(StatefulModel, path, STATEFUL[file], threads=threads, target=target)
        return Session(make, ("values",), str(path), workers)

    others = {file: partial(open_other, file) for file in OTHERS if file in files}
    others |= {file: partial(open_stateful, file) for file in STATEFUL if file in files}
    return open_whole(
        face, of_text=of_text, vocabularies=vocabularies, others=others, require_unchanged=require_unchanged
    )


OTHERS: Mapping[str, Callable[[Mapping[str, Input], Mapping[str, Result]], Interface]] = {
    SCORES: lambda inputs, _: interface_of_scores(inputs),
    ALIGNMENTS: lambda inputs, _: interface_of_alignments(inputs),
    SAMPLES: interface_of_samples,
    BEAMS: lambda _inputs, _results: interface_of_beams(),
}
"""The interfaces of the models that a call may ask for beside the engine's own, by file name."""


_PLANS = "rebuild the engine on a machine with TensorRT: xformc build RUN -o ENGINE --target tensorrt"

_AFTER = tuple(f"{name}{NEXT}" for name in (AT, DONE, SCORES_SO_FAR))
STATEFUL: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    PROMPT: (("prompt", "max_new_tokens"), (AT, POSITIONS, DONE)),
    CONTINUE: ((*SAMPLING_OPTIONS[1:], COUNT, AT), (STREAMED, *_AFTER)),
    CHECK: ((*SAMPLING_OPTIONS[1:], DRAFTED, AT), (STREAMED, *_AFTER)),
    REFILL: (
        (*SAMPLING_OPTIONS[1:], COUNT, JOINING, FROM, KEPT, AT, NEWEST, LENGTHS, SCORES_SO_FAR, READ),
        (STREAMED, SCORES_BY_STEP, *(f"{name}{NEXT}" for name in (DONE, LENGTHS, SCORES_SO_FAR))),
    ),
    JOIN: (("source", PREFIX), (f"{LIMIT}{NEXT}", f"{LEAST}{NEXT}")),
    ADVANCE: ((COUNT, KEPT, AT, LIMIT, LEAST, PREFIX_SO_FAR), tuple(f"{name}{NEXT}" for name in (AT, DONE, *POOL))),
    CACHES: ((SLOTS, CAPACITY), ()),
}
"""The inputs and outputs that the models with values from call to call have, by file name; the rest depends on the
model."""
