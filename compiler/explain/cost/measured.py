"""Measures seconds and bytes of a forward pass and of a decoding step on this machine, for growing inputs."""

import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xformc.compiler import compile_spec
from xformc.compiler.backends.onnx.initializers import Initializers, save_model
from xformc.compiler.backends.onnx.models import step_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.explain.cost.run_sizes import checked_length, find_program, run_sizes, step_sizes
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.names import MODEL
from xformc.runtime.session import open_model

SHORTEST = 64
RUNS, SHORT_SECONDS, LONG_SECONDS = 5, 0.3, 10.0
"""The number of runs for a median: more if they take less than SHORT_SECONDS, at least 3 if they take LONG_SECONDS."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Point:
    """Medians for one example with `length` positions in every input.

    `forward_bytes`: the values that the forward pass keeps for the backward pass, without parameters. `step_bytes`: the
    states of a decoding step and its constants. None if the task does not decode.
    """

    length: int
    forward_seconds: float
    forward_bytes: int
    step_seconds: float | None
    step_bytes: int | None


def lengths_up_to(longest: int) -> list[int]:
    """`longest`, half of it, and so on, down to 64, in ascending order."""
    lengths = [longest]
    while lengths[0] >= 2 * SHORTEST:
        lengths.insert(0, lengths[0] // 2)
    return lengths


def measure(spec: Spec, longest: int, progress: Callable[[str], None] = lambda _: None) -> list[Point]:
    """Time the training form in PyTorch and the derived step in ONNX Runtime, with random weights, at each length.

    Raises: SpecError; UserError for a length that the model does not support.
    """
    graph, fill = compile_spec(spec), _filler(spec)
    checked_length(spec, graph, longest)
    module = TorchModule(graph, spec.train.seed)
    program, _ = find_program(spec, "cpu")
    points: list[Point] = []
    with _step_session(program, module) as session:
        for length in lengths_up_to(longest):
            progress(f"{length:,} positions")
            seconds, kept = _forward(module, [fill(value, run_sizes(graph, length)) for value in graph.inputs])
            points.append(Point(length, seconds, kept, *_step(program, session, length, fill)))
    return points


def measure_step(spec: Spec, length: int) -> tuple[float, int]:
    """Median seconds of one decoding step at `length` positions, and the bytes of its states and constants.

    Raises: UserError for a spec that does not decode, or a length that it does not support.
    """
    graph = compile_spec(spec)
    checked_length(spec, graph, length)
    program, reason = find_program(spec, "cpu")
    if program is None:
        raise UserError(f"{spec.name} has no decoding step: {reason or 'it predicts labels'}")
    with _step_session(program, TorchModule(graph, spec.train.seed)) as session:
        seconds, held = _step(program, session, length, _filler(spec))
    assert seconds is not None and held is not None
    return seconds, held


_Fill = Callable[[Value, Mapping[str, int]], Array]


def _filler(spec: Spec) -> _Fill:
    """A function that makes random values of the spec's inputs."""
    vocabularies = {name: item.vocabulary for name, item in spec.inputs.items() if item.kind == "tokens"}
    return partial(_random, random=np.random.default_rng(spec.train.seed), vocabularies=vocabularies)


def _random(
    value: Value, sizes: Mapping[str, int], *, random: np.random.Generator, vocabularies: Mapping[str, int]
) -> Array:
    """Random numbers of the value's type; tokens are not special tokens, and masks hide nothing."""
    shape = _shape(value.type, sizes)
    if value.type.dtype == "bool":
        return np.ones(shape, np.bool_)
    if value.type.dtype == "int64":
        return random.integers(4, vocabularies.get(value.name, 5), shape)
    return random.standard_normal(shape, np.float32)


def _shape(type: Type, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[axis.name] if axis.size is None else axis.size for axis in type.axes)


def _forward(module: TorchModule, inputs: list[Array]) -> tuple[float, int]:
    tensors = [torch.tensor(array) for array in inputs]
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = module(*tensors)
    held = sum(kept.values())
    del result
    return _seconds(lambda: module(*tensors)), held


def _step(program: Program | None, session: Any, length: int, fill: _Fill) -> tuple[float | None, int | None]:
    if program is None:
        return None, None
    decoder = program.decoder
    sizes = step_sizes(decoder, length)
    feeds = {value.name: fill(value, sizes) for value in decoder.step.inputs}
    feeds[decoder.position.name] = np.array(length - 1)
    kept = (*decoder.constants, *(state.past for state in decoder.states))
    return _seconds(lambda: session.run(None, feeds)), sum(feeds[value.name].nbytes for value in kept)


@contextmanager
def _step_session(program: Program | None, module: TorchModule) -> Generator[Any]:
    """A session of the step in ONNX Runtime; None without a decoder."""
    if program is None:
        yield None
        return
    weights = Initializers(module.arrays())
    with tempfile.TemporaryDirectory(prefix="xformc-measure-") as folder:
        save_model(step_model(program, weights), weights, Path(folder))
        yield open_model(Path(folder) / MODEL)


def _seconds(run: Callable[[], object]) -> float:
    """The median time of a run, after one warm-up run that is not counted."""
    run()
    taken: list[float] = []
    while len(taken) < 3 or (len(taken) < RUNS and sum(taken) < LONG_SECONDS) or sum(taken) < SHORT_SECONDS:
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return median(taken)
