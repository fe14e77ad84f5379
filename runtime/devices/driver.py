"""Finds this machine's GPU through NVIDIA's driver, and checks that TensorRT plans fit it."""

import ctypes
from dataclasses import dataclass
from typing import Any

from xformc.errors import UserError
from xformc.format.plans import Plan


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, its compute capability, such as 8.9, and its memory in bytes."""

    name: str
    capability: str
    memory: int


def check_plan(plan: Plan, version: str, device: Gpu | None, place: str) -> None:
    """Check that a plan can be loaded on this device by its builder, of which `version` is installed.

    Raises: UserError at `place` if it cannot.
    """
    rebuild = "rebuild the engine on this machine: xformc build RUN -o ENGINE --target tensorrt"
    if version != plan.version:
        message = f"this plan was built by {plan.builder} {plan.version}, but {version} is installed"
        raise UserError(message, place=place, hint=f"{rebuild}, or install {plan.version}")
    if plan.capability is None:
        return
    if device is None:
        raise UserError(f"this plan runs on {_named(plan.device, plan.capability)}, but there is no GPU", place=place)
    if device.capability != plan.capability:
        wanted, found = _named(plan.device, plan.capability), _named(device.name, device.capability)
        raise UserError(f"this plan was built for {wanted}, but the GPU is {found}", place=place, hint=rebuild)


def _named(name: str | None, capability: str) -> str:
    return f"{name} (compute capability {capability})"


def find_gpu(driver: str = "libcuda.so.1") -> Gpu | None:
    """Return the first GPU that NVIDIA's driver lists, or None without a driver or GPU."""
    try:
        cuda: Any = ctypes.CDLL(driver)
    except OSError:
        return None
    handle, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), 0):
        return None
    cuda.cuDeviceGetName(name, 256, handle)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    capability = ".".join(str(_attribute(cuda, number, handle)) for number in (_MAJOR, _MINOR))
    return Gpu(name.value.decode(), capability, memory.value)


_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


def _attribute(cuda: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
