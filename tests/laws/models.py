"""Random specs, compiled, with weights and inputs: their results, and the tolerance of each result."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from hypothesis import assume
from laws.specs import Sample

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.inference import inference
from xformc.compiler.spec import Spec, load_spec

TOLERANCE = 1e-4
"""Of results: relative to the largest where that is above 1."""

ILL_CONDITIONED = 1e-3
"""Where the last bits of the weights change results by this share of the tolerance's scale, nothing is compared."""

PADDING = 2
"""How many positions of each second row are padding, in inputs that are not decoded."""


@dataclass(frozen=True)
class Model:
    """A sample as a graph without dropout, and a module with weights for it."""

    sample: Sample
    spec: Spec
    graph: Graph
    module: TorchModule

    def inputs(self, length: int = 6, seed: int = 0) -> list[np.ndarray]:
        """Random arrays of 4 rows for each input; rows 1 and 3 end in padding, but for what is decoded."""
        random = np.random.default_rng(seed)
        return [self._input(value, random, length) for value in self.graph.inputs]

    def alone(self, inputs: list[np.ndarray], row: int) -> list[np.ndarray]:
        """One row of the inputs, without its padding."""
        rows = [array[row : row + 1] for array in inputs]
        padded = [row % 2 and value.name != self.sample.decoded for value in self.graph.inputs]
        return [array[:, :-PADDING] if cut else array for array, cut in zip(rows, padded, strict=True)]

    def _input(self, value: Value, random: np.random.Generator, length: int) -> np.ndarray:
        shape = [4, length, *(axis.size or 0 for axis in value.type.axes[2:])]
        if value.type.dtype == "float32":
            return random.standard_normal(shape, np.float32)
        array = random.integers(4, 20, shape)
        if value.name != self.sample.decoded:
            array[1::2, -PADDING:] = 0
        return array if value.type.dtype == "int64" else array > 0

    def run(self, inputs: list[np.ndarray]) -> np.ndarray:
        """What PyTorch gives."""
        with torch.no_grad():
            return self.module(*map(torch.from_numpy, inputs)).numpy()

    def known(self, inputs: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """What PyTorch gives, and how far from it another right computation may be."""
        expected = self.run(inputs)
        scale = max(1.0, float(np.abs(expected).max()))
        other = float(np.abs(self._nudged().run(inputs) - expected).max())
        assume(np.isfinite(scale) and other < ILL_CONDITIONED * scale)
        return expected, TOLERANCE * scale + 10 * other

    def _nudged(self) -> "Model":
        """The same with weights that differ in their last bits."""
        random = np.random.default_rng(1)
        module = TorchModule(self.graph).eval()
        arrays = self.module.arrays()
        module.load_arrays(
            {name: value * (1 + 1e-7 * random.standard_normal(value.shape)) for name, value in arrays.items()}
        )
        return Model(self.sample, self.spec, self.graph, module)


def read(sample: Sample, folder: Path) -> Spec:
    """The spec of a sample, from a file."""
    path = folder / "model.yaml"
    path.write_text(sample.yaml(), encoding="utf-8")
    return load_spec(path)


def make_model(sample: Sample, folder: Path) -> Model:
    """The model, with weights of which none is zero."""
    spec = read(sample, folder)
    graph = verify(inference(compile_spec(spec)))
    return Model(sample, spec, graph, random_module(graph))


def random_module(graph: Graph, seed: int = 3) -> TorchModule:
    """A module with random weights, also for parameters that begin as constants."""
    module = TorchModule(graph, seed).eval()
    random = np.random.default_rng(seed)
    arrays = module.arrays()
    module.load_arrays(
        {name: value + 0.1 * random.standard_normal(value.shape).astype(np.float32) for name, value in arrays.items()}
    )
    return module


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Fail where two results are further apart, or are not numbers."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def assert_causal(
    run: Callable[[list[np.ndarray]], np.ndarray], inputs: list[np.ndarray], expected: np.ndarray, tolerance: float
) -> None:
    """Changing token t of the last input changes no result before t."""
    *sources, tokens = inputs
    for position in range(1, tokens.shape[1]):
        changed = tokens.copy()
        changed[:, position] = 4 + (tokens[:, position] - 4 + 7) % 16
        assert_close(run([*sources, changed])[:, :position], expected[:, :position], tolerance)
