"""Position encodings as images: the numbers that a model adds to embeddings or scores, one row per position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.explain.figure import font, save
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.attention_weights import short_names
from xformc.compiler.ops.elementwise import Add
from xformc.compiler.ops.positions import Positions
from xformc.errors import UserError


@dataclass(frozen=True)
class Encoding:
    """A named position encoding or bias.

    `numbers` is [1, positions, width] for vectors added to embeddings, [heads, positions, keys] for biases added to
    scores; `across` names the last axis.
    """

    name: str
    numbers: npt.NDArray[np.float32]
    across: str


def find_encodings(graph: Graph, length: int, seed: int, weights: Mapping[str, Any] | None) -> list[Encoding]:
    """The position encodings and biases of a model for the first `length` positions, each once.

    Without `weights`, learned ones are initialized with this seed. Raises: UserError if the model has none, or has them
    for fewer positions.
    """
    fixed = _of_positions_alone(graph)
    added = [value for value in _added(graph, set(fixed)) if _across(value.type) is not None]
    if not added:
        hint = (
            "only encodings that are added to embeddings or scores can be drawn: sinusoids, learned positions, biases"
        )
        raise UserError(f"{graph.name} adds no position encoding", hint=hint)
    _check_length(graph, length)
    values = _evaluate(graph, fixed, length, seed, weights)
    found: list[Encoding] = []
    for value in added:
        numbers, across = _panels(values[value.name], value.type), _across(value.type) or ""
        if not any(np.array_equal(numbers, other.numbers) for other in found):
            found.append(Encoding(value.name, numbers, across))
    names = short_names([one.name for one in found]) if len(found) > 1 else [graph.name]
    return [replace(one, name=name) for one, name in zip(found, names, strict=True)]


def draw_encodings(encodings: Sequence[Encoding], path: Path) -> None:
    """Write the images to `path` (svg, pdf or png), with one row per position from the top.

    Vectors are side by side; each bias has its own line, with one picture per head.
    """
    heads = max(len(encoding.numbers) for encoding in encodings)
    lines, columns = (1, len(encodings)) if heads == 1 else (len(encodings), heads)
    side = 2.9 if heads == 1 else 1.3
    size = (0.7 + side * columns, 0.86 * side * lines + (0.4 if heads > 1 else 0.0))
    figure: Any = Figure(figsize=size, layout="constrained")
    plots: Any = figure.subplots(lines, columns, squeeze=False, sharey="row")
    largest = max(float(np.abs(encoding.numbers).max()) for encoding in encodings)
    panels = [(encoding, panel) for encoding in encodings for panel in encoding.numbers]
    image: Any = None
    for index, (plot, (encoding, panel)) in enumerate(zip(plots.flat, panels, strict=True)):
        image = plot.imshow(panel, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        if heads == 1:
            plot.set_title(encoding.name, fontproperties=font(8))
        elif index < heads:
            plot.set_title(f"head {index + 1}", fontproperties=font(6.5))
        first = index % columns == 0
        _label(plot, encoding, "" if not first else "position" if heads == 1 else f"{encoding.name}\nposition")
    bar = figure.colorbar(image, ax=list(plots.flat), fraction=0.04, pad=0.015)
    bar.ax.tick_params(labelsize=6.5, length=2, width=0.5)
    bar.outline.set_linewidth(0.5)
    save(figure, path)


def _label(plot: Any, encoding: Encoding, beside: str) -> None:
    size = 7 if len(encoding.numbers) == 1 else 5.5
    plot.set_xlabel(encoding.across, fontproperties=font(size))
    plot.set_ylabel(beside, fontproperties=font(size))
    plot.tick_params(labelsize=6, length=2, width=0.5)
    for spine in plot.spines.values():
        spine.set_linewidth(0.5)


def _of_positions_alone(graph: Graph) -> list[str]:
    """The values that depend only on positions and parameters."""
    parameters = {parameter.name for parameter in graph.parameters}
    found: list[str] = []
    for node in graph.nodes:
        inputs = [value.name for value in node.inputs if value.name not in parameters]
        if isinstance(node.op, Positions) or (inputs and all(name in found for name in inputs)):
            found.extend(value.name for value in node.outputs)
    return found


def _added(graph: Graph, fixed: set[str]) -> list[Value]:
    """The values of `fixed` that are added to other values."""
    used = [node.inputs for node in graph.nodes if isinstance(node.op, Add) and node.outputs[0].name not in fixed]
    return list({value.name: value for inputs in used for value in inputs if value.name in fixed}.values())


def _across(type: Type) -> str | None:
    """The meaning of a value's last axis: `dimension` or `key`; None if it cannot be drawn."""
    open_axes = [axis for axis in type.axes if axis.size is None]
    if len(type.axes) == 2 and len(open_axes) < 2:
        return "dimension"
    return "key" if len(type.axes) == 3 and len(open_axes) == 2 else None


def _panels(numbers: torch.Tensor, type: Type) -> npt.NDArray[np.float32]:
    """The numbers as [1, positions, width], or as [heads, positions, keys]."""
    if len(type.axes) == 2:
        return numbers[None].numpy()
    heads = next(index for index, axis in enumerate(type.axes) if axis.size is not None)
    return numbers.movedim(heads, 0).numpy()


def _check_length(graph: Graph, length: int) -> None:
    limits = [node.op.limit for node in graph.nodes if isinstance(node.op, Positions) and node.op.limit is not None]
    if limits and length > min(limits):
        hint = f"use --length {min(limits)} or less"
        raise UserError(f"the model has encodings for {min(limits)} positions, not {length}", hint=hint)


def _evaluate(
    graph: Graph, names: Sequence[str], length: int, seed: int, weights: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    """Compute these values with the part of the graph that takes positions as its inputs."""
    nodes = [node for node in graph.nodes if node.outputs[0].name in names]
    positions = tuple(node.outputs[0] for node in nodes if isinstance(node.op, Positions))
    inner = tuple(node for node in nodes if not isinstance(node.op, Positions))
    used = {value.name for node in inner for value in node.inputs}
    parameters = tuple(one for one in graph.parameters if weights is None or one.name in used)
    module = TorchModule(replace(graph, inputs=positions, parameters=parameters, nodes=inner, outputs=()), seed).eval()
    if weights is not None:
        module.load_arrays(weights)
    with torch.no_grad():
        return module.all_values(*(torch.arange(value.type.axes[0].size or length) for value in positions))
