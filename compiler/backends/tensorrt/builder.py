"""One interface to TensorRT's builders, which turn a model file into a plan.

`tensorrt` builds for the GPU of this machine. `tensorrt_rtx` has the same API and needs no GPU: its plans are finished
when they are loaded.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xformc.compiler.backends.tensorrt.profiles import Tensor
from xformc.errors import UserError
from xformc.format.plans import INSTALL, Profile
from xformc.runtime.devices.driver import Gpu, find_gpu

BEST = 3
"""The default optimization level of a builder, 0 to 5; 3 is also TensorRT's default."""


@dataclass(frozen=True)
class Builder:
    """An installed builder. `device`: the GPU that its plans are for, or None for any GPU."""

    module: Any
    device: Gpu | None

    @property
    def name(self) -> str:
        """tensorrt or tensorrt_rtx."""
        return str(self.module.__name__)

    @property
    def version(self) -> str:
        """The version; its plans need the same."""
        return str(self.module.__version__)


def installed_builders() -> tuple[str, ...]:
    """The names of the installed builders, the preferred one first."""
    return tuple(name for name in INSTALL if find_spec(name) is not None)


def open_builder(name: str | None = None) -> Builder:
    """The builder with this name, or the preferred installed one for None.

    Raises: UserError if it is not installed, or needs a GPU that is not here.
    """
    found = installed_builders()
    if name not in (None, *found) or not found:
        wanted = [name] if name is not None else list(INSTALL)
        hint = " or ".join(INSTALL[each] for each in wanted)
        raise UserError(f"{' and '.join(wanted)}: not installed, but needed to build TensorRT plans", hint=hint)
    chosen = name or found[0]
    if chosen == "tensorrt_rtx":
        return Builder(import_module(chosen), None)
    device = find_gpu()
    if device is None:
        hint = f"build on the machine that will run the engine, or for any GPU: {INSTALL['tensorrt_rtx']}"
        raise UserError(f"{chosen} needs a GPU, and there is none", hint=hint)
    return Builder(import_module(chosen), device)


class Network:
    """A model parsed by a builder, ready to be built once.

    `places` maps names of values in the graph to their places in the spec; node names contain them (see `Emitter`).
    """

    def __init__(self, builder: Builder, path: Path, places: Mapping[str, str | None]) -> None:
        """Parse the model file and its data file.

        Raises: UserError at the place of the first unsupported operator.
        """
        self.builder, self.path, self._places = builder, path, places
        trt = builder.module
        self._log = _make_log(trt)
        self._factory = trt.Builder(self._log)
        self._network = self._factory.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        self._parser = trt.OnnxParser(self._network, self._log)
        if not self._parser.parse_from_file(str(path)):
            raise self._refused()

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The network's inputs by name."""
        return {item.name: Tensor(_axes(item), item.dtype.itemsize) for item in self._given()}

    def build(self, profile: Profile, *, effort: int = BEST, exact: bool = True, cache: Path | None = None) -> bytes:
        """Build the plan for sizes within this profile. An axis with a single size becomes a constant of the network.

        `effort`: see BEST. `exact`: compute float32 matrix products in float32; otherwise TensorRT may round operands
        to TF32, with 10 mantissa bits as in float16. `cache`: a file with the timings of earlier builds, which is
        updated.

        Raises: UserError if an axis is not in the profile, or TensorRT cannot build the plan.
        """
        config = self._factory.create_builder_config()
        config.builder_optimization_level = effort
        if exact:
            config.clear_flag(self.builder.module.BuilderFlag.TF32)
        config.add_optimization_profile(self._bounded(profile))
        timings = _read_timings(config, cache)
        plan = self._factory.build_serialized_network(self._network, config)
        if plan is None:
            raise self._failed("; ".join(self._log.errors))
        if timings is not None and cache is not None:
            _write_whole(cache, bytes(timings.serialize()))
        return bytes(plan)

    def _bounded(self, profile: Profile) -> Any:
        """TensorRT's own form of the profile."""
        bounds = self._factory.create_optimization_profile()
        for item in self._given():
            if item.is_shape_tensor:
                raise UserError(f"TensorRT treats the input {item.name} as a shape", place=str(self.path))
            ranges = [(axis, axis, axis) if isinstance(axis, int) else profile[axis] for axis in _axes(item)]
            item.shape = [least if least == most else -1 for least, _, most in ranges]
            if ranges:
                bounds.set_shape(item.name, *zip(*ranges, strict=True))
        return bounds

    def _given(self) -> list[Any]:
        return [self._network.get_input(index) for index in range(self._network.num_inputs)]

    def _refused(self) -> UserError:
        errors = [self._parser.get_error(index) for index in range(self._parser.num_errors)]
        if not errors:
            return self._failed("; ".join(self._log.errors))
        first = errors[0]
        value, place = self._origin(first.node_name())
        message = f"{self.builder.name} {self.builder.version} refuses the operator {first.node_operator()}{value}"
        reason = " ".join(str(first.desc()).split())[:300]
        return UserError(f"{message}: {reason}", place=place or str(self.path))

    def _failed(self, said: str) -> UserError:
        """The error for a message of TensorRT, at the place of the node that it names."""
        names = sorted({name for name in self._places if name in said}, key=len)
        value, place = self._origin(names[-1]) if names else ("", None)
        message = f"{self.builder.name} {self.builder.version} cannot build {self.path.name}{value}"
        return UserError(f"{message}: {' '.join(said.split())[:600]}", place=place or str(self.path))

    def _origin(self, node: str) -> tuple[str, str | None]:
        """` of VALUE`, the value of the graph that a node computes, and its place in the spec; both may be unknown."""
        value = node.partition(":")[0]
        return (f" of {value}", self._places[value]) if value in self._places else ("", None)


def timing_cache(builder: Builder) -> Path | None:
    """The file of timings for this builder and device, in the user's cache, shared by all engines.

    None for tensorrt_rtx, which measures nothing before a plan is loaded.
    """
    if builder.device is None:
        return None
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (named if named.is_absolute() else Path.home() / ".cache") / "xformc" / "timings"
    device = re.sub(r"\W+", "-", builder.device.name)
    return folder / f"{builder.name}-{builder.version}-{device}.cache"


def _axes(item: Any) -> tuple[str | int, ...]:
    return tuple(item.get_dimension_name(index) if size < 0 else size for index, size in enumerate(item.shape))


def _read_timings(config: Any, cache: Path | None) -> Any:
    if cache is None:
        return None
    known = b""
    with suppress(OSError):
        known = cache.read_bytes()
    timings = config.create_timing_cache(known) or config.create_timing_cache(b"")
    config.set_timing_cache(timings, ignore_mismatch=False)
    return timings


def _write_whole(path: Path, content: bytes) -> None:
    """Write the file atomically; ignore errors, since it is only a cache."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)


def _make_log(trt: Any) -> Any:
    """A logger that collects errors and prints nothing."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()
