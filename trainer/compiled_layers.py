"""Runs layers through torch.compile, which compiles layers that compute alike once: in as much time as for one layer.

What is outside of layers, such as embeddings and the loss, stays as it is; a model without layers is compiled whole. A
layer is compiled whole, too, so that no part of it is recomputed alone (see `recompute.check_recompute`).
"""

import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.module import TorchModule, layers_of
from xformc.compiler.backends.torch.node_steps import run_steps
from xformc.compiler.backends.torch.plan import BlockPlan
from xformc.compiler.ops.recurrence import Recurrence

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch.compile, for any number of rows and positions."""
    return cast(Any, torch).compile(function, dynamic=True)


def compile_layers(model: TorchModule, compile: Compile = compiled) -> None:
    """Compile the layers of the model; a recurrence, which would be compiled again for each length, stays as it is."""
    # The inputs of a layer are results of others, and torch looks whether they have gradients.
    warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
    layers, known = layers_of(model), list[tuple[object, Callable[..., Any]]]()
    if not layers and not _recurs(model.plan):
        cast(Any, model).forward = compile(model.forward)
    for layer in layers.values():
        if _recurs(layer.plan):
            continue
        form = _form(layer.plan)
        function = next((function for other, function in known if other == form), None)
        if function is None:
            function = compile(_function(layer))
            known.append((form, function))
        layer.forward = _called(layer, function)


def _recurs(plan: BlockPlan) -> bool:
    return any(isinstance(node.op, Recurrence) for node in plan.all_nodes)


def _function(layer: Block) -> Callable[..., Any]:
    """What the layer computes, as a function of its parameters, then of its inputs."""
    plan, steps = layer.plan, layer.all_steps()
    names = (*layer.parameter_values(), *plan.inputs)

    def run(*tensors: Tensor) -> Any:
        values: dict[str, Any] = dict(zip(names, tensors, strict=True))
        run_steps(steps, values)
        return values[plan.outputs[0]] if len(plan.outputs) == 1 else tuple(values[name] for name in plan.outputs)

    run.__code__ = run.__code__.replace()  # torch counts the compilations of a code object, and ends at a limit
    return run


def _called(layer: Block, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: function(*layer.parameter_values().values(), *inputs)


def _form(plan: BlockPlan) -> object:
    """What layers that compute alike have in common: nodes and outputs, with names from inside the layer."""
    start = f"{plan.path}/"
    given = {name: f"input {index}" for index, name in enumerate(plan.inputs)}

    def inside(name: str) -> str:
        return given.get(name, name.removeprefix(start))

    nodes = [
        (
            node.op,
            [(inside(value.name), value.type) for value in node.inputs],
            [(inside(value.name), value.type) for value in node.outputs],
            node.outputs[0].name in plan.exact,
        )
        for node in plan.all_nodes
    ]
    return nodes, [inside(name) for name in plan.outputs]
