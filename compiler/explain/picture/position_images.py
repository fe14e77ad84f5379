"""Position encodings as an image: what a model adds to its embeddings or its scores, a row for each position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.explain.attention.attention_maps import short_names
from xformc.compiler.explain.figure import font, save
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.elementwise import Add
from xformc.compiler.ops.positions import Positions
from xformc.errors import UserError


@dataclass(frozen=True)
class Encoding:
    """Numbers that depend on positions alone, and what they are called.

    `numbers` has [1, positions, width] for vectors that are added to embeddings, [heads, positions, keys] for biases
    that are added to scores; `across` says which of the two the last axis is.
    """

    name: str
    numbers: npt.NDArray[np.float32]
    across: str


def find_encodings(graph: Graph, length: int, seed: int, weights: Mapping[str, Any] | None) -> list[Encoding]:
    """The position encodings and biases of a model for the first `length` positions, each once.

    Without `weights`, learned ones are as they are drawn for this seed. Raises: UserError if the model has none, or
    has them for fewer positions.
    """
    fixed = _of_positions_alone(graph)
    added = [value for value in _added(graph, set(fixed)) if _across(value.type) is not None]
    if not added:
        hint = "only what is added to embeddings or scores is an image: sinusoids, learned positions, biases"
        raise UserError(f"{graph.name} adds no encoding of positions", hint=hint)
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
    """Write the images to `path` (svg, pdf or png), a row for each position from the top.

    Vectors stand beside each other; biases have a line each, with a picture for each head.
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
    """The values that are made of positions and parameters only."""
    parameters = {parameter.name for parameter in graph.parameters}
    found: list[str] = []
    for node in graph.nodes:
        inputs = [value.name for value in node.inputs if value.name not in parameters]
        if isinstance(node.op, Positions) or (inputs and all(name in found for name in inputs)):
            found.extend(value.name for value in node.outputs)
    return found


def _added(graph: Graph, fixed: set[str]) -> list[Value]:
    """Those of them that are added to something else."""
    used = [node.inputs for node in graph.nodes if isinstance(node.op, Add) and node.outputs[0].name not in fixed]
    return list({value.name: value for inputs in used for value in inputs if value.name in fixed}.values())


def _across(type: Type) -> str | None:
    """What the numbers of a position stand for: `dimension` or `key`; None for what has no image."""
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
        hint = f"--length {min(limits)} at most"
        raise UserError(f"the model has encodings for {min(limits)} positions, not {length}", hint=hint)


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
        return module.all_values(*(torch.arange(value.type.axes[0].size or length) for value in positions))
