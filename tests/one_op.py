"""Graphs of one op, and their results in PyTorch and ONNX Runtime."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st

from xformc.compiler.backends.onnx.initializers import Initializers, save_model
from xformc.compiler.backends.onnx.models import forward_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Graph, Initial, Op
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.verify import verify
from xformc.format.targets import Target
from xformc.runtime.session import open_model

SAME = {"u": "t"}
"""Axes that are as long as another."""

KNOWN = {"d", "k", "k2", "v", "h", "o"}
"""Axes whose sizes stand in the graph; the others are known only at run time."""


@dataclass(frozen=True)
class Case:
    """A one-op graph: its inputs and parameters by their axes; inputs are float32 unless `dtypes` has others."""

    op: Op
    inputs: tuple[tuple[str, ...], ...]
    parameters: tuple[tuple[str, ...], ...] = ()
    dtypes: tuple[DType, ...] = ()

    def dtype(self, index: int) -> DType:
        """The dtype of an input."""
        return self.dtypes[index] if index < len(self.dtypes) else "float32"


def one_op(case: Case, sizes: dict[str, int]) -> Graph:
    """The graph of a case, when axes have these sizes."""
    builder = GraphBuilder("one op")

    def axes(names: tuple[str, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(name, sizes[name] if name in KNOWN else None) for name in names)

    values = [builder.input(f"x{i}", Type(case.dtype(i), axes(names))) for i, names in enumerate(case.inputs)]
    for index, names in enumerate(case.parameters):
        initial = Initial("normal", 1.0)
        values.append(builder.parameter(f"p/{index}", Type("float32", axes(names)), initial))
    return verify(builder.finish(builder.emit_all(case.op, values, "y")))


def open_onnx(
    graph: Graph, module: TorchModule, folder: Path, *, target: Target
) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """The outputs of a graph for its inputs in ONNX Runtime, with the parameters of the module."""
    initializers = Initializers(module.arrays())
    save_model(forward_model(graph, initializers, target=target), initializers, folder)
    session = open_model(folder / "model.onnx", target=target)
    return lambda inputs: session.run(
        None, {value.name: array for value, array in zip(graph.inputs, inputs, strict=True)}
    )


def run_onnx(
    graph: Graph, module: TorchModule, inputs: list[np.ndarray], folder: Path, *, target: Target
) -> list[np.ndarray]:
    """What `open_onnx` gives for these inputs."""
    return open_onnx(graph, module, folder, target=target)(inputs)


def assert_same_everywhere(case: Case, data: st.DataObject, folder: Path, sizes: dict[str, int] | None = None) -> None:
    """PyTorch and both ONNX targets agree on random inputs; axes without a size in `sizes` get a random one."""
    letters = sorted({letter for names in (*case.inputs, *case.parameters) for letter in names})
    drawn = {letter: data.draw(st.integers(1, 5), label=letter) for letter in letters} | (sizes or {})
    drawn |= {letter: drawn[other] for letter, other in SAME.items() if letter in drawn}
    graph = one_op(case, drawn)
    random = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    shapes = [[drawn[axis] for axis in names] for names in case.inputs]
    inputs = [random_array(random, case.dtype(index), shape) for index, shape in enumerate(shapes)]
    module = TorchModule(graph, seed=1)
    with torch.no_grad():
        expected = module(*map(torch.from_numpy, inputs)).numpy()
    for target in ("portable", "cpu"):
        (found,) = run_onnx(graph, module, inputs, folder, target=target)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def random_array(random: np.random.Generator, dtype: DType, shape: list[int]) -> np.ndarray:
    """Normal floats, integers of 0 to 3, or flags."""
    if dtype == "float32":
        return random.standard_normal(shape).astype(np.float32)
    return random.integers(0, 4, shape) if dtype == "int64" else random.random(shape) < 0.5
