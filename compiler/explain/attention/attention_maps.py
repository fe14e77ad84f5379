"""The attention weights of a model for one example, from its unfused graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.attention_weights import AttentionWeights, exposed_weights, positions_of_keys, short_names
from xformc.errors import UserError


@dataclass(frozen=True)
class AttentionMap:
    """The weights of positions `columns` for each position `rows` (an axis of positions, or None for a single vector).

    `name` is the path of the attention; `weights` is [heads, rows, columns].
    """

    name: str
    rows: str | None
    columns: str
    weights: npt.NDArray[np.float32]

    @property
    def group(self) -> str:
        """The name without layer numbers: `decoder/cross_attention`."""
        return "/".join(part for part in self.name.split("/") if not part.isdigit())

    @property
    def layer(self) -> str:
        """The number of its layer, from 1, such as `3`; empty if it is not in a repeat."""
        return ".".join(str(int(part) + 1) for part in self.name.split("/") if part.isdigit())


def attention_maps(graph: Graph, weights: Mapping[str, Any], inputs: Sequence[torch.Tensor]) -> list[AttentionMap]:
    """The maps of a graph, without dropout or fused attention, for one example, in the order of the graph.

    `inputs` are the graph's, with a batch of 1. Raises: UserError if the model has no attention weights.
    """
    exposed, found = exposed_weights(graph)
    if not found:
        raise UserError(
            f"{graph.name} has no attention weights", hint="attention maps need a weight per pair of positions"
        )
    module = TorchModule(exposed).eval()
    module.load_arrays(weights)
    with torch.no_grad():
        values = module.all_values(*inputs)
    positions = positions_of_keys(exposed)
    names = short_names([one.value.name for one in found])
    return [
        AttentionMap(name, one.rows, positions[one.keys], _ordered(values[one.value.name], one))
        for name, one in zip(names, found, strict=True)
    ]


def _ordered(weights: torch.Tensor, found: AttentionWeights) -> npt.NDArray[np.float32]:
    """The weights of the first example as [heads, rows, keys]."""
    names = list(found.value.type.names)
    last = [name for name in (found.rows, found.keys) if name is not None]
    heads = [name for name in names if name not in ("batch", *last)]
    order = [names.index(name) for name in ("batch", *heads, *last)]
    first = weights.permute(order)[0]
    rows = first.shape[len(heads)] if found.rows else 1
    return first.reshape(-1, rows, first.shape[-1]).numpy()
