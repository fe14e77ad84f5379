"""Layers that cast the weights of their linear maps to bfloat16 at once, where autocast casts each by itself.

On a GPU, that is one launch in the forward pass of a layer and one in its backward pass. Results and gradients are the
same to the bit, unless layers share a weight: its gradients are then added in float32.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.module import TorchModule, layers_of
from xformc.compiler.backends.torch.node_steps import run_steps
from xformc.compiler.backends.torch.plan import BlockPlan
from xformc.compiler.ops.linear import Linear
from xformc.compiler.spec.paths import is_whole


def cast_layers(model: TorchModule, recomputed: Sequence[str] = ()) -> None:
    """Let the layers of the model cast their weights at once, under autocast.

    A layer is run as a whole, so one of which parts are `recomputed` stays as it is (see `recompute.recompute`).
    """
    for layer in layers_of(model).values():
        inside = [block.path for block in layer.plan.all_blocks]
        if not any(is_whole(pattern, path) for pattern in recomputed for path in inside):
            layer.forward = _casting(layer)


def _casting(layer: Block) -> Callable[..., Any]:
    plan, steps = layer.plan, layer.all_steps()
    names = _cast_alone(plan, layer.parameter_values())

    def run(*inputs: Tensor) -> Any:
        values: dict[str, Any] = layer.parameter_values()
        device = next((value.device.type for value in values.values()), "cpu")
        learned = [name for name in names if values[name].requires_grad]
        if learned and torch.is_autocast_enabled(device):
            function: Any = _Cast
            low = function.apply(torch.get_autocast_dtype(device), *(values[name] for name in learned))
            values.update(zip(learned, low, strict=True))
        values.update(zip(plan.inputs, inputs, strict=True))
        run_steps(steps, values)
        return values[plan.outputs[0]] if len(plan.outputs) == 1 else tuple(values[name] for name in plan.outputs)

    return run


def _cast_alone(plan: BlockPlan, parameters: Container[str]) -> list[str]:
    """The parameters, of those of a layer, that only one linear map uses, which is computed in bfloat16."""
    uses = Counter(value.name for node in plan.all_nodes for value in node.inputs)
    return [
        value.name
        for node in plan.all_nodes
        if isinstance(node.op, Linear) and node.outputs[0].name not in plan.exact
        for value in node.inputs[1:]
        if value.name in parameters and uses[value.name] == 1
    ]


class _Cast(torch.autograd.Function):
    """Casts tensors to a type, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        dtype, *wide = arguments
        ctx.dtype = wide[0].dtype
        return _as(wide, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *_as(gradients, ctx.dtype)


def _as(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    found = tuple(torch.empty_like(one, dtype=dtype) for one in tensors)
    cast(Any, torch)._foreach_copy_(found, tensors)
    return found
