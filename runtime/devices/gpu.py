"""Checks whether this machine can run engines on its GPU, with one error message for each reason why not."""

import io
import logging
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from xformc.errors import UserError
from xformc.format.plans import INSTALL, Plan
from xformc.runtime.devices.driver import Gpu, check_plan, find_gpu
from xformc.runtime.onnx_runtime import onnx_runtime

CUDA = "CUDAExecutionProvider"
ON_THE_PROCESSOR = 'or run it on the CPU: --device cpu, in Python load(..., device="cpu")'


def require_onnx_cuda(place: str) -> None:
    """Check that ONNX Runtime can use a GPU here, and load the libraries that it needs.

    Raises: UserError at `place` if something is missing.
    """
    runtime = onnx_runtime()
    if CUDA not in runtime.get_available_providers():
        raise UserError(_without_cuda(), place=place, hint=f"{_with_cuda()}, {ON_THE_PROCESSOR}")
    require_gpu(place)
    said = io.StringIO()
    with redirect_stdout(said):  # it prints what it cannot load
        runtime.preload_dlls()
    if said.getvalue():
        logging.getLogger(__name__).warning("%s", said.getvalue().strip())


def require_gpu(place: str) -> Gpu:
    """Return the GPU. Raises: UserError at `place` if NVIDIA's driver finds none."""
    device = find_gpu()
    if device is None:
        message = "this engine runs on a GPU, but NVIDIA's driver finds none here"
        raise UserError(message, place=place, hint=ON_THE_PROCESSOR.removeprefix("or "))
    return device


def require_tensorrt(plans: Mapping[str, Plan], place: str) -> Any:
    """Import the TensorRT module that runs these plans, one or more, by file name.

    Raises: UserError at `place` if something is missing, or if a plan does not fit this machine.
    """
    name = next(iter(plans.values())).builder
    for module in (name, "cuda.bindings.runtime"):
        try:
            import_module(module)
        except ImportError as error:
            message = f"this engine's plans run in {name}, but {module} cannot be imported: {error}"
            raise UserError(message, place=place, hint=f"{INSTALL[name]}, {ON_THE_PROCESSOR}") from error
    tensorrt, device = import_module(name), require_gpu(place)
    for file, plan in plans.items():
        check_plan(plan, tensorrt.__version__, device, f"{place}/{file}")
    return tensorrt


def _without_cuda() -> str:
    cpu, gpu = _version("onnxruntime"), _version("onnxruntime-gpu")
    if cpu and gpu:
        return (
            f"this engine runs on a GPU, but the package onnxruntime {cpu} was installed over onnxruntime-gpu {gpu}: "
            "both have the module onnxruntime, and the last one installed is used"
        )
    return "this engine runs on a GPU, but the installed package onnxruntime is for CPUs only"


def _with_cuda() -> str:
    installed = _version("onnxruntime-gpu")
    over = "pip install --force-reinstall --no-deps onnxruntime-gpu"
    if installed:
        return f"reinstall onnxruntime-gpu: {over}=={installed}"
    return f"install onnxruntime-gpu over it: pip install 'xformc[gpu]' && {over}"


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (it takes 4 MB, and only messages need it)

    try:
        return version(package)
    except PackageNotFoundError:
        return None
