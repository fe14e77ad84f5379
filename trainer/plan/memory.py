"""The memory of a training step, from its shapes: the step runs on tensors that have shapes but no contents."""

import weakref
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.node_steps import Operators
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph
from xformc.errors import UserError
from xformc.trainer.loop import autocast
from xformc.trainer.recompute import Contexts, contexts, recompute


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a step, without the model's weights and the optimizer's states.

    kept: the activations that the forward pass keeps. peak: the most that is held at any moment, gradients included.
    """

    kept: int
    peak: int


def step_memory(
    graph: Graph,
    rows: int,
    length: int,
    *,
    batches: int,
    bfloat16: bool,
    patterns: Sequence[str] = (),
    gpu: bool = True,
) -> StepMemory:
    """The memory of a step of `batches` batches, each of `rows` examples of `length` positions, one after the other.

    graph: the training form, whose first output is the loss. patterns: the blocks whose activations are recomputed.
    gpu: count what kernels for GPUs keep (masks of dropout as bytes, attention without its weights, larger chunks of
    logits), not those for processors.

    Raises: UserError for a pattern that fits no block, and for a model with an operator that needs its contents.
    """
    try:
        return _step_memory(graph, rows, length, batches, patterns, bfloat16=bfloat16, gpu=gpu)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        message = f"this model cannot be planned: its step needs the contents of tensors ({error.func})"
        raise UserError(message, hint="train it for some steps, which show its memory") from error


def _step_memory(
    graph: Graph, rows: int, length: int, batches: int, patterns: Sequence[str], *, bfloat16: bool, gpu: bool
) -> StepMemory:
    with FakeTensorMode(), ExitStack() as stack:
        if gpu:
            stack.enter_context(_kernels_of_gpus())
        model = TorchModule(graph, 0)
        model.train()
        recompute(model, patterns, _same if gpu else contexts)
        inputs = [_input(value.type, rows, length) for value in graph.inputs]
        allocated = stack.enter_context(Allocated([*model.parameters(), *model.buffers(), *inputs]))
        kept, precision = 0, _autocast if gpu else autocast
        for _ in range(min(2, batches)):
            with precision(torch.device("cpu"), bfloat16):
                before = allocated.bytes
                loss = cast(Tensor, model(*inputs)[0])
            kept = allocated.bytes - before
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            del loss
        return StepMemory(kept, allocated.peak)


class Allocated(TorchDispatchMode):
    """Counts the bytes of the tensors that are made in the block, and live; not those of the `known` ones."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.bytes = self.peak = 0
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet(one.untyped_storage() for one in known)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count the storages of its results that are new."""
        results = func(*args, **(kwargs or {}))
        for result in cast(Any, _pytree).tree_leaves(results):
            if isinstance(result, Tensor):
                self._count(result.untyped_storage())
        return results

    def _count(self, storage: Any) -> None:
        if storage in self._storages:
            return
        self._storages.add(storage)
        self.bytes += storage.nbytes()
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size: int) -> None:
        self.bytes -= size


class _FlashAttention(TorchFunctionMode):
    """Attention with dropout keeps its weights on a processor; kernels for GPUs draw the mask again."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention:
            given["dropout_p"] = 0.0
        return func(*args, **given)


@contextmanager
def _kernels_of_gpus() -> Generator[None]:
    ours, loss = Operators.dropout, Operators.linear_cross_entropy
    Operators.dropout = staticmethod(_native_dropout)
    Operators.linear_cross_entropy = staticmethod(partial(loss, chunks_of="cuda"))
    try:
        with _FlashAttention():
            yield
    finally:
        Operators.dropout, Operators.linear_cross_entropy = staticmethod(ours), staticmethod(loss)


def _autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """As `loop.autocast`, with the attention of GPUs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _same() -> Contexts:
    """Those of the forward pass, and the same for the recomputation, where its modes no longer hold."""
    return nullcontext(), _attention_of_gpus()


@contextmanager
def _attention_of_gpus() -> Generator[None]:
    with _FlashAttention():
        yield


def _native_dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    return torch.native_dropout(x, probability, training)[0] if training and probability else x


def _input(kind: Type, rows: int, length: int) -> Tensor:
    shape = [{"batch": rows}.get(axis.name, length) if axis.size is None else axis.size for axis in kind.axes]
    return torch.zeros(shape, dtype=getattr(torch, kind.dtype))
