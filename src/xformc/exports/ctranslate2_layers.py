"""Writes parameters by their paths into the layers of CTranslate2's specification classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

SHARED = "encoder/embed/embedding/weight"


class Writer:
    """Writes parameters by their paths into CTranslate2's layers."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    def tied(self, *paths: str) -> Array:
        """The weight at the first of these paths that there is, or the embedding that all are tied to."""
        path = next((one for one in (*paths, SHARED) if one in self.weights), SHARED)
        return np.ascontiguousarray(self.weights[path])

    def norm(self, layer: Any, path: str) -> None:
        """Write a norm."""
        layer.gamma, layer.beta = (np.ascontiguousarray(self.weights[f"{path}/{name}"]) for name in ("gain", "bias"))

    def linear(self, layer: Any, *paths: str) -> None:
        """Concatenate the projections at the paths into one CTranslate2 projection."""
        weights = [self.weights[f"{path}/weight"] for path in paths]
        rows = [len(one) if path.endswith("/output") else -1 for path, one in zip(paths, weights, strict=True)]
        flat = [one.reshape(size, one.shape[-1] if size < 0 else -1) for one, size in zip(weights, rows, strict=True)]
        layer.weight = np.concatenate(flat)
        biases = [self.weights[name].reshape(-1) for path in paths if (name := f"{path}/bias") in self.weights]
        if biases:
            layer.bias = np.concatenate(biases)

    def attention(self, layer: Any, path: str, *, fused: bool) -> None:
        """Write an attention with its norm; `fused`: queries, keys and values are one projection."""
        self.norm(layer.layer_norm, f"{path}/layer_norm")
        query, key, value, output = (f"{path}/{name}" for name in ("query", "key", "value", "output"))
        groups = [(query, key, value), (output,)] if fused else [(query,), (key, value), (output,)]
        for linear, paths in zip(layer.linear, groups, strict=True):
            self.linear(linear, *paths)

    def feed_forward(self, layer: Any, path: str) -> None:
        """Write a feed-forward network with its norm."""
        self.norm(layer.layer_norm, f"{path}/layer_norm")
        self.linear(layer.linear_0, f"{path}/inner")
        self.linear(layer.linear_1, f"{path}/output")
