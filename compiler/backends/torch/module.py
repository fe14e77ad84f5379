"""The PyTorch backend: a graph becomes an `nn.Module` whose state_dict keys are the graph's parameter paths."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xformc.compiler import ops
from xformc.compiler.backends.torch.chunked_loss import linear_cross_entropy
from xformc.compiler.backends.torch.dropout import dropout
from xformc.compiler.graph.graph import Graph, Parameter
from xformc.compiler.graph.rules import to_torch
from xformc.compiler.quantize.number_format import LinearMap

assert ops, "importing the ops fills the rule tables"


_NOTHING: Mapping[str, LinearMap] = {}


class TorchModule(nn.Module):
    """A graph as a module. `forward` takes the graph's inputs in order and returns its output (a tuple if several).

    `state_dict` has one entry for each parameter, under its path and with its axes' sizes.
    """

    def __init__(self, graph: Graph, seed: int = 0, maps: Mapping[str, LinearMap] = _NOTHING) -> None:
        """Draw fresh parameters; the same graph and seed give the same numbers on every machine.

        `maps` says for some weights, by their names, what takes the place of their linear maps.
        """
        super().__init__()
        self.graph = graph
        self._maps = dict(maps)
        generator = torch.Generator().manual_seed(seed)
        for parameter in graph.parameters:
            self.register_parameter(parameter.name, nn.Parameter(_draw(parameter, generator), parameter.trained))
        self._steps = _compile(graph, self)

    torch = torch
    functional = nn.functional
    linear_cross_entropy = staticmethod(linear_cross_entropy)
    dropout = staticmethod(dropout)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled steps, which refer to this very module."""
        return {name: value for name, value in self.__dict__.items() if name != "_steps"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copied or unpickled module and compile the steps for this one."""
        parent: Any = super()
        parent.__setstate__(state)
        self._steps = _compile(self.graph, self)

    def forward(self, *inputs: Tensor) -> Any:
        """The graph's outputs for its inputs, given in order. Tensors have the axes that the graph names."""
        values = self.values(*inputs)
        first, *others = (values[value.name] for value in self.graph.outputs)
        return (first, *others) if others else first

    def values(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Every value of the graph by its name, parameters included."""
        values: dict[str, Any] = dict(self._parameters)
        values.update(zip((value.name for value in self.graph.inputs), inputs, strict=True))
        _run(self._steps, values)
        return values

    def linear(self, weight: str) -> LinearMap:
        """The linear map of the parameter of this name."""
        return self._maps.get(weight, nn.functional.linear)

    def with_maps(self, maps: Mapping[str, LinearMap]) -> "TorchModule":
        """The module, not training, with its parameters, and with these in place of its linear maps."""
        module = TorchModule(self.graph, maps=maps).eval()
        module.load_state_dict(self.state_dict())
        return module

    def function(self, graph: Graph) -> Callable[..., Any]:
        """The graph as a function of its inputs in order, to a tuple of its outputs; it has no parameters."""
        steps = _compile(graph, self)
        inputs, outputs = ([value.name for value in values] for values in (graph.inputs, graph.outputs))

        def run(*arguments: Tensor) -> tuple[Tensor, ...]:
            values = dict(zip(inputs, arguments, strict=True))
            _run(steps, values)
            return tuple(values[name] for name in outputs)

        return run

    def load_arrays(self, arrays: Mapping[str, Any]) -> None:
        """Take parameter values from arrays named by path. Raises: KeyError or RuntimeError where one does not fit."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                assert parameter is not None
                parameter.copy_(torch.tensor(np.asarray(arrays[name], np.float32)))


_Step = tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]


def _run(steps: list[_Step], values: dict[str, Any]) -> None:
    for function, arguments, results in steps:
        result = function(*[values[name] for name in arguments])
        if len(results) == 1:
            values[results[0]] = result
        else:
            values.update(zip(results, result, strict=True))


def _compile(graph: Graph, module: TorchModule) -> list[_Step]:
    return [
        (
            to_torch.of(node.op, node.place)(node.op, node, module),
            tuple(value.name for value in node.inputs),
            tuple(value.name for value in node.outputs),
        )
        for node in graph.nodes
    ]


def _draw(parameter: Parameter, generator: torch.Generator) -> Tensor:
    sizes, initial = parameter.type.sizes(), parameter.initial
    if initial.kind == "constant":
        return torch.full(sizes, initial.value)
    if initial.kind == "normal":
        return torch.empty(sizes).normal_(0.0, initial.value, generator=generator)
    return torch.empty(sizes).uniform_(-initial.value, initial.value, generator=generator)
