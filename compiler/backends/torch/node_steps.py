"""The interface of `to_torch` rules, and nodes as steps that run on a mapping of values."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xformc.compiler import ops
from xformc.compiler.backends.torch.chunked_loss import linear_cross_entropy
from xformc.compiler.backends.torch.dropout import dropout
from xformc.compiler.backends.torch.linear_attention import linear_attention
from xformc.compiler.backends.torch.linear_scan import linear_scan
from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.graph.rules import to_torch
from xformc.compiler.quantize.number_format import LinearMap

assert ops, "importing the ops fills the rule tables"

Step = tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]
"""A function, the names of its arguments and the names of its results."""
RowMap = Callable[[Tensor], Tensor]
"""A function of rows, the last axis."""
NO_MEMORIES: Mapping[str, RowMap] = {}


class Operators:
    """The `TorchNamespace` of the nodes that `module` runs; dropout follows its training mode.

    `maps` replaces the linear maps of some weights, by name. `memories` maps the keys and values of some attentions, by
    the names of their results.
    """

    torch = torch
    functional = nn.functional
    linear_cross_entropy = staticmethod(linear_cross_entropy)
    dropout = staticmethod(dropout)
    linear_scan = staticmethod(linear_scan)
    linear_attention = staticmethod(linear_attention)

    def __init__(
        self, module: nn.Module, maps: Mapping[str, LinearMap], memories: Mapping[str, RowMap] = NO_MEMORIES
    ) -> None:
        self._module = module
        self._maps = maps
        self._memories = memories

    @property
    def training(self) -> bool:
        """Whether the module is in training mode."""
        return self._module.training

    def linear(self, weight: str) -> LinearMap:
        """The linear map with this parameter."""
        return self._maps.get(weight, nn.functional.linear)

    def constant(self, name: str, values: Tensor) -> Callable[[], Tensor | None]:
        """A function that returns this tensor, a buffer of the module that no state_dict contains."""
        attribute, buffers = f"constant {name.replace('.', ':')}", self._module._buffers  # pyright: ignore[reportPrivateUsage]
        if attribute not in buffers:
            self._module.register_buffer(attribute, values, persistent=False)
        return lambda: buffers[attribute]

    def function(self, graph: Graph) -> Callable[..., tuple[Tensor, ...]]:
        """The graph, which has no parameters, as a function from its inputs, in order, to a tuple of its outputs."""
        steps = [self.step(node) for node in graph.nodes]
        inputs, outputs = ([value.name for value in values] for values in (graph.inputs, graph.outputs))

        def run(*arguments: Tensor) -> tuple[Tensor, ...]:
            values: dict[str, Any] = dict(zip(inputs, arguments, strict=True))
            run_steps(steps, values)
            return tuple(values[name] for name in outputs)

        return run

    def step(self, node: Node) -> Step:
        """The node as a step. Raises: RuleError if its op has no rule."""
        function = to_torch.of(node.op, node.place)(node.op, node, self)
        return (
            _remembering(function, self._memories.get(node.outputs[0].name)),
            tuple(value.name for value in node.inputs),
            tuple(value.name for value in node.outputs),
        )


def _remembering(attend: Callable[..., Any], stored: RowMap | None) -> Callable[..., Any]:
    """The attention with its keys and values as they are stored."""
    if stored is None:
        return attend

    def attend_stored(query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> Any:
        return attend(query, stored(key), stored(value), *rest)

    return attend_stored


def in_float32(step: Step) -> Step:
    """The step, computed without autocast."""
    function, arguments, results = step

    def run(*inputs: Tensor) -> Any:
        device = inputs[0].device.type
        if not torch.amp.is_autocast_available(device):
            return function(*inputs)
        with torch.autocast(device, enabled=False):
            return function(*inputs)

    return run, arguments, results


def run_steps(steps: Iterable[Step], values: dict[str, Any]) -> None:
    """Run the steps in order; each reads its arguments from `values` and stores its results there."""
    for function, arguments, results in steps:
        result = function(*[values[name] for name in arguments])
        if len(results) == 1:
            values[results[0]] = result
        else:
            values.update(zip(results, result, strict=True))
