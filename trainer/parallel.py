"""Wraps a model for training in several processes: each has all parameters (DDP), or a part of each (FSDP2)."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from xformc.compiler.backends.torch.module import TorchModule, layers_of
from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.graph.rules import mixes
from xformc.errors import UserError
from xformc.trainer.data.batches import Batch
from xformc.trainer.processes import Processes
from xformc.trainer.tensors import Rows

SUMS = ("cross_entropy", "linear_cross_entropy", "binary_cross_entropy", "deviation")
"""The losses that add up over the rows of a batch."""


def parallel(model: TorchModule, processes: Processes, sample: Batch, *, shard: bool) -> torch.nn.Module:
    """The model to train: with several processes one that averages their gradients. `sample` is any batch.

    With `shard`, the parameters of `model` become parts of tensors; an optimizer must be made after that.
    """
    if processes.count == 1:
        return model
    if not shard:
        return DistributedDataParallel(model, find_unused_parameters=_has_unused(model, sample))
    # Blocks return views, which no other block changes in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 (importing it takes a second)

    shard_module = cast(Callable[[torch.nn.Module], object], fully_shard)
    for layer in layers_of(model).values():
        shard_module(layer)
    shard_module(model)
    return model


def rows_of(tensor: torch.Tensor) -> Rows:
    """The rows of a tensor that this process has: all, or those that FSDP2 has given it."""
    if not _is_part(tensor):
        return Rows(tensor, tensor.shape)
    part: Any = tensor
    count, rank = part.device_mesh.size(), part.device_mesh.get_local_rank()
    first = min(rank * -(-part.shape[0] // count), part.shape[0])  # as torch.chunk
    return Rows(part.to_local(), part.shape, first, in_parts=True)


def read_like(parameter: torch.Tensor, file: Any, name: str) -> torch.Tensor:
    """Read the same rows of a tensor of a safetensors file as this process has of the parameter."""
    if not _is_part(parameter):
        return file.get_tensor(name).to(parameter.device, copy=True)
    own = rows_of(parameter)
    rows = file.get_slice(name)[own.first : own.first + len(own.tensor)].to(own.tensor.device, copy=True)
    return _with_rows(parameter, rows)


def whole_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor of which each process has a part; all processes ask for it together."""
    return cast(Any, tensor).full_tensor() if _is_part(tensor) else tensor


def part_like(parameter: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The part of a tensor of the parameter's shape that this process has of the parameter; all of it without parts."""
    if not _is_part(parameter):
        return whole
    own = rows_of(parameter)
    return _with_rows(parameter, whole[own.first : own.first + len(own.tensor)].clone())


def _with_rows(parameter: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A tensor in parts like those of the parameter, of which this process has these rows."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (importing it takes a second)

    part = cast(Any, parameter)
    return DTensor.from_local(rows, part.device_mesh, part.placements, shape=part.shape, stride=part.stride())


def reshard(model: torch.nn.Module) -> None:
    """Give up the whole parameters that the last forward pass has left."""
    for module in cast(Any, model).modules():
        if hasattr(module, "reshard"):
            module.reshard()


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def _has_unused(model: torch.nn.Module, sample: Batch) -> bool:
    """Whether the losses do not depend on some parameter, such as that of a projection of which only the argmax counts.

    Torch searches for these in each step, and only if it is told to.
    """
    placed = sample.to(next(model.parameters()).device)
    total = torch.stack(model(*placed.inputs.values(), *placed.targets.values())[::3]).sum()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients: Any = torch.autograd.grad(total, learned, allow_unused=True)
    return any(gradient is None for gradient in gradients)


def check_shares(graph: Graph, accumulate: int, processes: Processes) -> None:
    """Raises: UserError if the rows of a batch must be shared out, and some op or loss needs them together."""
    together = next((node for node in graph.nodes if _needs_whole_batch(node)), None)
    if accumulate % processes.count and together is not None:
        count = processes.count
        raise UserError(
            f"{count} processes cannot share the rows of a batch: '{together.op.kind}' needs them together",
            place=together.place,
            hint=f"set train.accumulate to a multiple of {count}: each process then takes whole batches",
        )


def _needs_whole_batch(node: Node) -> bool:
    return node.op.kind not in SUMS and "batch" in mixes.of(node.op)(node.op, node)


@contextmanager
def reducing(model: torch.nn.Module, enabled: bool) -> Generator[None]:
    """Average the gradients over the processes at the end of a backward pass in the block, or add them up locally."""
    if hasattr(model, "set_requires_gradient_sync"):
        cast(Any, model).set_requires_gradient_sync(enabled)
    if enabled or not isinstance(model, DistributedDataParallel):
        yield
        return
    with cast(Any, model).no_sync():
        yield
