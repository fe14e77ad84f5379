"""Position encodings as an image: what a model adds to its embeddings, a row for each position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.positions import Positions
from xformc.compiler.report.figure import save
from xformc.errors import UserError


@dataclass(frozen=True)
class Encoding:
    """Numbers [positions, width] that depend on the position alone, and what they are called."""

    name: str
    numbers: npt.NDArray[np.float32]


def find_encodings(graph: Graph, length: int, seed: int, weights: Mapping[str, Any] | None) -> list[Encoding]:
    """The position encodings of a model for the first `length` positions, each once.

    Without `weights`, learned ones are as they are drawn for this seed. Raises: UserError if the model has none, or
    has them for fewer positions.
    """
    fixed = _of_positions_alone(graph)
    names = [value.name for value in _frontier(graph, set(fixed)) if _is_encoding(value.type)]
    if not names:
        raise UserError(f"{graph.name} has no position encodings", hint="a model has them by the choice 'positions'")
    _check_length(graph, length)
    values = _evaluate(graph, fixed, length, seed, weights)
    found: list[Encoding] = []
    for name in names:
        numbers = values[name].numpy()
        if not any(np.array_equal(numbers, other.numbers) for other in found):
            found.append(Encoding(name, numbers))
    return found


def draw_encodings(encodings: Sequence[Encoding], path: Path) -> None:
    """Write the images beside each other to `path` (svg, pdf or png): a row for each position, from the top."""
    figure: Any = Figure(figsize=(0.7 + 2.9 * len(encodings), 2.5), layout="constrained")
    largest = max(float(np.abs(encoding.numbers).max()) for encoding in encodings)
    plots: Any = figure.subplots(1, len(encodings), squeeze=False, sharey=True)[0]
    image: Any = None
    for plot, encoding in zip(plots, encodings, strict=True):
        image = plot.imshow(
            encoding.numbers, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
        )
        plot.set_title(encoding.name, fontsize=8)
        plot.set_xlabel("dimension", fontsize=7.5)
        plot.tick_params(labelsize=6.5, length=2, width=0.5)
        for spine in plot.spines.values():
            spine.set_linewidth(0.5)
    plots[0].set_ylabel("position", fontsize=7.5)
    bar = figure.colorbar(image, ax=list(plots), fraction=0.04, pad=0.015)
    bar.ax.tick_params(labelsize=6.5, length=2, width=0.5)
    bar.outline.set_linewidth(0.5)
    save(figure, path)


def _of_positions_alone(graph: Graph) -> list[str]:
    """The values that are made of positions and parameters only."""
    parameters = {parameter.name for parameter in graph.parameters}
    found: list[str] = []
    for node in graph.nodes:
        inputs = [value.name for value in node.inputs if value.name not in parameters]
        if isinstance(node.op, Positions) or (inputs and all(name in found for name in inputs)):
            found.extend(value.name for value in node.outputs)
    return found


def _frontier(graph: Graph, fixed: set[str]) -> list[Value]:
    """Those of them that something else uses."""
    used = [node.inputs for node in graph.nodes if node.outputs[0].name not in fixed]
    return list({value.name: value for inputs in used for value in inputs if value.name in fixed}.values())


def _is_encoding(type: Type) -> bool:
    return type.dtype == "float32" and len(type.axes) == 2 and type.axes[0].size is None and type.axes[1].size != 1


def _check_length(graph: Graph, length: int) -> None:
    limits = [node.op.limit for node in graph.nodes if isinstance(node.op, Positions) and node.op.limit is not None]
    if limits and length > min(limits):
        raise UserError(f"the model has encodings for {min(limits)} positions, not {length}", hint="--length")


def _evaluate(
    graph: Graph, names: Sequence[str], length: int, seed: int, weights: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    """These values, of the part of the graph that takes the positions themselves as its inputs."""
    nodes = [node for node in graph.nodes if node.outputs[0].name in names]
    positions = tuple(node.outputs[0] for node in nodes if isinstance(node.op, Positions))
    inner = tuple(node for node in nodes if not isinstance(node.op, Positions))
    used = {value.name for node in inner for value in node.inputs}
    parameters = tuple(one for one in graph.parameters if weights is None or one.name in used)
    module = TorchModule(replace(graph, inputs=positions, parameters=parameters, nodes=inner, outputs=()), seed).eval()
    if weights is not None:
        module.load_arrays(weights)
    with torch.no_grad():
        return module.values(*(torch.arange(length) for _ in positions))
