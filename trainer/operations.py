"""Counts the operations of training: the matrix products of a step, and the share of the machine's peak."""

from collections.abc import Callable

import torch

from xformc.compiler.graph.cost import total
from xformc.compiler.graph.graph import Graph, all_nodes
from xformc.compiler.graph.rules import cost_of, made_lengths
from xformc.trainer.data.batches import Batch
from xformc.trainer.plan.cards import card_called
from xformc.trainer.plan.plan import FORWARD_AND_BACKWARD

Count = Callable[[Batch], float]
"""The operations of the step of a batch."""


def operations_of(graph: Graph, copies: int = 1) -> Count:
    """Count the operations in matrix products of forward and backward passes, as the report does, padding included.

    graph: the model up to its results. copies: how often a step has each row. What is recomputed counts once. Raises:
    RuleError for an op without a cost.
    """
    products = total(cost_of(node) for node in graph.nodes).products
    lengths = list(made_lengths(all_nodes(graph.nodes)))

    def count(batch: Batch) -> float:
        sizes: dict[str, int] = {}
        for value, tensor in zip(graph.inputs, batch.inputs.values(), strict=True):
            sizes |= {axis.name: size for axis, size in zip(value.type.axes, tensor.shape, strict=True)}
        for name, made in lengths:
            sizes[name] = made.at(sizes)
        return FORWARD_AND_BACKWARD * copies * products.at(sizes)

    return count


def peak_of(device: torch.device, precision: str, processes: int = 1) -> float | None:
    """The most operations per second of the GPUs of all processes; None for a processor or an unknown card."""
    if device.type != "cuda":
        return None
    card = card_called(torch.cuda.get_device_name(device))
    speed = None if card is None else card.bfloat16 if precision == "bfloat16" else card.float32
    return None if speed is None else processes * speed * 1e12
