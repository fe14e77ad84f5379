"""The `Device` of TensorRT, which runs plans as captured CUDA graphs."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.names import MODEL, PLAN, PREPARE, STEP
from xformc.format.plans import Profile
from xformc.runtime.devices.cuda import CudaBuffer, Stream
from xformc.runtime.devices.device import INPUT_AXES, Buffer, Sizes
from xformc.runtime.devices.driven import KEPT
from xformc.runtime.devices.fixed_shapes import parts_of
from xformc.runtime.devices.recent import Recent
from xformc.runtime.session import Arrays

Shapes = Mapping[str, tuple[int, ...]]

DTYPES = {"FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}
"""The numpy types of the TensorRT types that the runtime reads and writes."""


class TensorRTDevice:
    """A `Device` of the plans prepare.plan and step.plan in a folder."""

    def __init__(
        self, directory: Path, tensorrt: Any, profile: Profile, given: Mapping[str, tuple[str | int, ...]]
    ) -> None:
        """`tensorrt` is the module that built the plans, tensorrt or tensorrt_rtx; `profile` has their sizes; `given`
        are the axes of the inputs of the spec.

        Raises: UserError if the module cannot read the plans.
        """
        self.profile, self._tensorrt, self._stream, self.in_place = profile, tensorrt, Stream(), False
        self._axes = {**INPUT_AXES, **given}
        self._prepare, self._step = (load_plan(directory, name, tensorrt) for name in (PREPARE, STEP))

    def models(self, sizes: Sizes) -> tuple["TensorRTModel", "TensorRTModel"]:
        """See `Device`."""
        names = plan_tensors(self._prepare, self._tensorrt.TensorIOMode.INPUT)
        known = {
            name: tuple(axis if isinstance(axis, int) else sizes[axis] for axis in axes)
            for name, axes in self._axes.items()
            if all(isinstance(axis, int) or axis in sizes for axis in axes)
        }
        prepare = TensorRTModel(
            self._tensorrt, self._prepare, self._stream, {name: known.get(name, ()) for name in names}
        )
        return prepare, TensorRTModel(self._tensorrt, self._step, self._stream, {**known, **prepare.shapes})


class TensorRTModel:
    """A `Model` of a plan with its own execution context; `given` has the shapes of its inputs."""

    def __init__(self, tensorrt: Any, plan: Any, stream: Stream, given: Shapes) -> None:
        self._plan, self._stream = plan, stream
        self.inputs: Sequence[str] = plan_tensors(plan, tensorrt.TensorIOMode.INPUT)
        self.outputs: Sequence[str] = plan_tensors(plan, tensorrt.TensorIOMode.OUTPUT)
        self._context = plan.create_execution_context()
        wanted = {name: given.get(name, ()) for name in self.inputs}
        for name, shape in wanted.items():
            if not self._context.set_input_shape(name, shape):
                hint = "use smaller batches, or rebuild the engine with another --profile"
                raise UserError(f"the plan was not built for {name} of shape {list(shape)}", hint=hint)
        self._context.infer_shapes()
        self.shapes = {name: tuple(self._context.get_tensor_shape(name)) for name in (*self.inputs, *self.outputs)}

    def buffer(self, name: str) -> CudaBuffer:
        """See `Model`."""
        dtype = self._plan.get_tensor_dtype(name)
        return CudaBuffer(self._stream, self.shapes[name], DTYPES.get(dtype.name), dtype.itemsize)

    def call(self, buffers: Mapping[str, Buffer]) -> "TensorRTCall":
        """See `Model`."""
        addresses = {name: cast(CudaBuffer, buffer).address for name, buffer in buffers.items()}
        return TensorRTCall(self._context, self._stream, addresses)


class TensorRTCall:
    """A `Call` of an execution context. The first run is direct and fixes everything that depends on shapes; then the
    call is captured as a CUDA graph.
    """

    def __init__(self, context: Any, stream: Stream, addresses: Mapping[str, int]) -> None:
        self._context, self._stream, self._addresses = context, stream, addresses
        self._warm = False
        self._launch: Any = None

    def start(self) -> None:
        """See `Call`."""
        if self._launch is not None:
            self._launch()
        elif self._warm:
            self._launch = self._stream.captured(self._enqueue)
            self._launch()
        else:
            self._enqueue()
            self._warm = True

    def wait(self) -> None:
        """See `Call`."""
        self._stream.wait()

    def _enqueue(self) -> None:
        for name, address in self._addresses.items():
            self._context.set_tensor_address(name, address)
        if not self._context.execute_async_v3(self._stream.handle):
            raise RuntimeError("TensorRT could not execute the plan")


class PlanModel:
    """An `Executor` of model.plan, for engines that predict labels: one call for each batch."""

    def __init__(self, directory: Path, tensorrt: Any, profile: Profile, outputs: Sequence[str]) -> None:
        """See `TensorRTDevice`; `outputs` are the outputs of the engine's interface."""
        self._profile, self._tensorrt, self._outputs, self._stream = profile, tensorrt, outputs, Stream()
        self._plan = load_plan(directory, MODEL, tensorrt)
        self._forwards = Recent[tuple[tuple[str, tuple[int, ...]], ...], _Forward](KEPT)
        self._lock = threading.Lock()

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """See `Executor`."""
        with self._lock:
            parts = [self._run_part(part) for part in parts_of(feeds, self._profile)]
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def _run_part(self, feeds: Arrays) -> list[NDArray[Any]]:
        shapes = {name: array.shape for name, array in feeds.items()}
        forward = self._forwards.get(tuple(shapes.items()), lambda: self._forward(shapes))
        return forward.run(feeds, self._outputs)

    def _forward(self, shapes: Shapes) -> "_Forward":
        return _Forward(TensorRTModel(self._tensorrt, self._plan, self._stream, shapes))


class _Forward:
    """A model with its buffers."""

    def __init__(self, model: TensorRTModel) -> None:
        self._inputs = {name: model.buffer(name) for name in model.inputs}
        self._outputs = {name: model.buffer(name) for name in model.outputs}
        self._call = model.call({**self._inputs, **self._outputs})

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> list[NDArray[Any]]:
        for name, buffer in self._inputs.items():
            buffer.write(feeds[name])
        self._call.start()
        return [self._outputs[name].read() for name in outputs]


def load_plan(directory: Path, model: str, tensorrt: Any) -> Any:
    """Load the plan of the model of this name. Raises: UserError if TensorRT rejects it."""
    path = (directory / model).with_suffix(PLAN)
    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
    plan = runtime.deserialize_cuda_engine(path.read_bytes())
    if plan is None:
        raise UserError(
            f"{tensorrt.__name__} {tensorrt.__version__} cannot read this plan",
            place=str(path),
            hint="rebuild the engine on this machine: xformc build RUN -o ENGINE --target tensorrt",
        )
    return plan


def plan_tensors(plan: Any, mode: Any) -> list[str]:
    """Return the names of the plan's inputs or outputs."""
    names = [str(plan.get_tensor_name(index)) for index in range(plan.num_io_tensors)]
    return [name for name in names if plan.get_tensor_mode(name) == mode]
