"""Runs layers through torch.compile, which compiles layers that compute alike once: in as much time as for one layer.

What is outside of layers, such as embeddings and the loss, stays as it is; a model without layers is compiled whole.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.node_steps import run_steps
from xformc.compiler.backends.torch.parameter_paths import path_of
from xformc.compiler.backends.torch.plan import BlockPlan
from xformc.compiler.spec.paths import is_whole
from xformc.errors import UserError

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch.compile, for any number of rows and positions."""
    return cast(Any, torch).compile(function, dynamic=True)


def layers_of(model: TorchModule) -> dict[str, Block]:
    """The numbered blocks that compute something and are in no other such block, by path."""
    found = dict[str, Block]()
    for name, block in cast(Any, model).named_modules():
        numbered = name.rpartition(".")[2].isdigit() and isinstance(block, Block) and block.is_called
        if numbered and not any(name.startswith(f"{around}.") for around in found):
            found[name] = block
    return {path_of(name): block for name, block in found.items()}


def compile_layers(model: TorchModule, recomputed: Sequence[str] = (), compile: Compile = compiled) -> None:
    """Compile the layers of the model. `recomputed` are patterns of blocks whose activations are computed twice.

    Raises: UserError for a pattern that fits a block inside of a layer.
    """
    layers = layers_of(model)
    for name, _ in cast(Any, model).named_modules():
        path = path_of(name)
        inside = any(path.startswith(f"{layer}/") for layer in layers)
        for pattern in recomputed if inside else ():
            if is_whole(pattern, path) and not is_whole(pattern, path.rpartition("/")[0]):
                message = f"train.recompute: '{pattern}' fits {path}, a part of a layer, which --compile compiles whole"
                raise UserError(message, hint="name whole layers, such as encoder/*")
    # The inputs of a layer are results of others, and torch looks whether they have gradients.
    warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
    if not layers:
        cast(Any, model).forward = compile(model.forward)
    known = list[tuple[_Form, Callable[..., Any]]]()
    for layer in layers.values():
        form = _form(layer.plan)
        function = next((function for other, function in known if other == form), None)
        if function is None:
            function = compile(_function(layer))
            known.append((form, function))
        layer.forward = _called(layer, function)


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


@dataclass(frozen=True)
class _Form:
    """What layers that compute alike have in common: their nodes, with names from inside the layer."""

    nodes: Sequence[object]
    outputs: Sequence[str]


def _form(plan: BlockPlan) -> _Form:
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
    return _Form(nodes, [inside(name) for name in plan.outputs])
