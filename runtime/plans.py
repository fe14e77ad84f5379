"""What engine.json says of TensorRT's plans, and whether they fit this machine."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xformc.errors import UserError
from xformc.runtime.document import Document

PLAN = ".plan"
"""A plan has the name of its model, with this in the place of .onnx."""

INSTALL = {"tensorrt": "pip install 'xformc[tensorrt]'", "tensorrt_rtx": "pip install 'xformc[tensorrt-rtx]'"}
"""The builders, by the names of their modules, and how to install each."""

Range = tuple[int, int, int]
"""The least, the most frequent and the largest size of an axis."""

Profile = Mapping[str, Range]
"""Of each axis of a model's inputs, by its name."""


@dataclass(frozen=True)
class Device:
    """A GPU: its name, its compute capability such as 8.9, and the bytes of its memory."""

    name: str
    capability: str
    memory: int


@dataclass(frozen=True)
class Plan:
    """One plan: what built it, for what, and for which sizes.

    builder: tensorrt or tensorrt_rtx. version: its own. device: the name of the GPU that it was built on, and
    capability, such as 8.9, what it runs on; both None for a plan that runs on every GPU that its builder knows.
    """

    builder: str
    version: str
    device: str | None
    capability: str | None
    precision: str
    profile: Profile


def read_plan(document: Document) -> Plan:
    """The record of one plan in engine.json. Raises: UserError where it says what cannot be."""
    profile = document.section("profile")
    ranges: dict[str, Range] = {}
    for axis in profile.fields:
        least, often, most = profile.integers(axis, 3)
        ranges[axis] = (least, often, most)
    return Plan(
        document.text("builder", tuple(INSTALL)),
        document.text("version"),
        document.optional_text("device"),
        document.optional_text("capability"),
        document.text("precision"),
        ranges,
    )


def check_plan(plan: Plan, version: str, device: Device | None, place: str) -> None:
    """Check that a plan can be loaded by its builder of this version, on this device.

    Raises: UserError at `place` that says what to rebuild.
    """
    rebuild = "rebuild the engine on this machine: xformc build SPEC --target tensorrt"
    if version != plan.version:
        message = f"this plan was built by {plan.builder} {plan.version}, and {version} is installed"
        raise UserError(message, place=place, hint=f"{rebuild}, or install {plan.version}")
    if plan.capability is None:
        return
    if device is None:
        raise UserError(f"this plan runs on {_named(plan.device, plan.capability)}, and there is no GPU", place=place)
    if device.capability != plan.capability:
        wanted, found = _named(plan.device, plan.capability), _named(device.name, device.capability)
        raise UserError(f"this plan was built for {wanted}, and the GPU is {found}", place=place, hint=rebuild)


def _named(name: str | None, capability: str) -> str:
    return f"{name} (compute capability {capability})"


def find_device(driver: str = "libcuda.so.1") -> Device | None:
    """The first GPU, as NVIDIA's driver tells it; None where there is no driver or no GPU."""
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
    return Device(name.value.decode(), capability, memory.value)


_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


def _attribute(cuda: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
