"""The weights of a module of one's own training loop, as the arrays that an engine is built from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from xformc.compiler.backends.torch.parameter_paths import path_of

COMPILED = "_orig_mod."
"""What torch.compile puts before the names of parameters."""


def named_arrays(weights: nn.Module | Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """The parameters in float32 by path, from a module or from a mapping of arrays or tensors.

    The mapping may have the dotted names of a state_dict, or paths such as `encoder/0/query/weight`.
    """
    state: Mapping[str, Any] = weights.state_dict() if isinstance(weights, nn.Module) else weights
    return {_path(name): _array(value) for name, value in state.items()}


def _path(name: str) -> str:
    return name if "/" in name else path_of(name.removeprefix(COMPILED))


def _array(value: Any) -> NDArray[np.float32]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)
