"""Buckets of distances: tables from the distance between a key and a query to the index of a learned vector or bias."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)


@dataclass(frozen=True)
class Buckets(Op):
    """The bucket of each distance (Raffel et al. 2020, section 2.1); int64, with the same axes.

    If `bidirectional`, half of the `count` buckets are for later keys; otherwise later keys are in bucket 0. The first
    half of the buckets of a side hold one distance each; the others grow by a constant factor up to `max_distance`, and
    the last holds all larger distances.
    """

    kind: ClassVar[str] = "buckets"
    count: int
    max_distance: int
    bidirectional: bool

    @property
    def farthest(self) -> int:
        """The distance beyond which all have one bucket."""
        return self.max_distance

    def table(self) -> list[int]:
        """The bucket of each distance from -max_distance to max_distance."""
        later = self.count // 2 if self.bidirectional else 0
        before = [self._bucket(distance) for distance in range(self.max_distance, 0, -1)]
        after = [later + bucket for bucket in reversed(before)] if self.bidirectional else [0] * len(before)
        return [*before, 0, *after]

    def _bucket(self, distance: int) -> int:
        side = self.count // 2 if self.bidirectional else self.count
        exact = side // 2
        if distance < exact:
            return distance
        part = log(distance / exact) / log(self.max_distance / exact)
        return min(side - 1, exact + int(part * (side - exact) + 1e-9))


@dataclass(frozen=True)
class SignedBuckets(Op):
    """The bucket of the distance of each query from each key (He et al. 2021); int64, with the same axes.

    Of `count` buckets, `count // 2` holds distance 0; later queries have higher ones, and earlier queries lower ones.
    The buckets up to `count // 4` from the middle hold one distance each; the others grow by a constant factor, so that
    the last but one begins before `max_distance`. Without `max_distance`, every bucket holds one distance. The buckets
    at both ends hold all larger distances. Input: int64 distances of keys from queries.
    """

    kind: ClassVar[str] = "signed_buckets"
    count: int
    max_distance: int | None = None

    @property
    def farthest(self) -> int:
        """The distance beyond which all have one bucket."""
        return self.max_distance or self.count // 2

    def table(self) -> list[int]:
        """The bucket of each distance of a key from a query, from -farthest to farthest."""
        distance = np.arange(self.farthest, -self.farthest - 1, -1, dtype=np.int64)
        found = distance if self.max_distance is None else self._grown(distance)
        return [int(bucket) for bucket in np.clip(found + self.count // 2, 0, self.count - 1)]

    def _grown(self, distance: NDArray[np.int64]) -> NDArray[np.int64]:
        """Distances as buckets from 0, in float32: what the published code computes, where a bucket begins."""
        exact, float32 = self.count // 4, np.float32
        far = np.log(np.maximum(abs(distance), exact).astype(float32) / float32(exact))
        part = far / np.log(float32((self.farthest - 1) / exact)) * float32(exact - 1)
        grown = np.sign(distance) * (np.ceil(part).astype(np.int64) + exact)
        return np.where(abs(distance) <= exact, distance, grown)


@types.rule(SignedBuckets)
@types.rule(Buckets)
def _buckets_types(op: Buckets | SignedBuckets, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require_distances(inputs[0])
    return inputs


def require_distances(distance: Type) -> None:
    """Check that a type is that of distances. Raises: the error of types."""
    require(distance.dtype == "int64", f"needs int64 distances, found {distance}")


for _op in (Buckets, SignedBuckets):
    mixes.rule(_op)(mixes_nothing)
    cost.rule(_op)(per_result(1))


@to_torch.rule(SignedBuckets)
@to_torch.rule(Buckets)
def _buckets_torch(op: Buckets | SignedBuckets, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    values, farthest = op.table(), op.farthest

    def apply(distance: Any) -> Any:
        buckets = torch.torch.tensor(values, device=distance.device)
        return buckets[distance.clamp(-farthest, farthest) + farthest]

    return apply


@to_onnx.rule(SignedBuckets)
@to_onnx.rule(Buckets)
def _buckets_onnx(
    op: Buckets | SignedBuckets, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]
) -> tuple[str, ...]:
    farthest = op.farthest
    place = onnx.op("Add", onnx.op("Clip", *inputs, -farthest, farthest), farthest)
    return (onnx.op("Gather", op.table(), place, axis=0),)
