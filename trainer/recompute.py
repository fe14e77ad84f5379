"""Activation checkpointing: blocks whose activations the backward pass computes again, to save memory."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch.nn import attention
from torch.utils import checkpoint

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.parameter_paths import path_of
from xformc.compiler.backends.torch.plan import plan_blocks
from xformc.compiler.graph.graph import Graph
from xformc.compiler.spec.paths import hint, is_whole
from xformc.errors import UserError

Contexts = tuple[AbstractContextManager[None], AbstractContextManager[None]]


def contexts() -> Contexts:
    """The contexts of both computations: the second is to use the same attention kernel (see `loop.autocast`)."""
    math = cast(Any, attention).sdpa_kernel(attention.SDPBackend.MATH)
    return nullcontext(), math if torch.is_autocast_enabled("cpu") else nullcontext()


def check_recompute(graph: Graph, patterns: Sequence[str], *, compiled: bool = False) -> None:
    """Raises: UserError for a pattern that fits no block or, if layers are `compiled`, a part of one."""
    paths = [plan.path for plan in plan_blocks(graph).all_blocks]
    for pattern in patterns:
        found = [path for path in paths if is_whole(pattern, path)]
        if not found:
            message = f"train.recompute: '{pattern}' matches no block"
            raise UserError(message, hint=hint(pattern, paths, "blocks"))
        inside = next((path for path in found if any(map(str.isdigit, path.split("/")[:-1]))), None)
        if compiled and inside is not None and not is_whole(pattern, inside.rpartition("/")[0]):
            message = f"train.recompute: '{pattern}' fits {inside}, a part of a layer, which --compile compiles whole"
            raise UserError(message, hint="name whole layers, such as encoder/*")


def recompute(model: Block, patterns: Sequence[str], contexts: Callable[[], Contexts] = contexts) -> None:
    """Compute the activations of the blocks whose path fits a pattern twice, with the same dropout, in `contexts`."""
    named = cast(Any, model).named_modules()
    blocks = {path_of(name): block for name, block in named if name and isinstance(block, Block) and block.is_called}
    for path, block in blocks.items():
        if any(is_whole(pattern, path) for pattern in patterns):
            twice = cast(Any, checkpoint).checkpoint
            block.forward = partial(twice, block.forward, use_reentrant=False, context_fn=contexts)
