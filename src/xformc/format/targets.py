"""The targets of engines, and what each of them has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Target = Literal["portable", "cpu", "native", "cuda", "tensorrt"]
TARGETS: tuple[Target, ...] = get_args(Target)


@dataclass(frozen=True)
class Traits:
    """What a model of one target may have.

    contrib: operators of ONNX Runtime's own (com.microsoft). kernels: those of docs/kernels.md. fixed: searches keep
    their shapes, and a runtime may drive them; they run on a GPU. typed: matrix products are computed in the numbers of
    their weights. calibrated: products may round what they are given by calibrated scales. plans: TensorRT builds them.
    """

    contrib: bool = False
    kernels: bool = False
    fixed: bool = False
    typed: bool = False
    calibrated: bool = False
    plans: bool = False


TRAITS: Mapping[Target, Traits] = {
    "portable": Traits(),
    "cpu": Traits(contrib=True),
    "native": Traits(contrib=True, kernels=True),
    "cuda": Traits(fixed=True, typed=True),
    "tensorrt": Traits(fixed=True, typed=True, calibrated=True, plans=True),
}
"""The one table in which targets differ: everything else asks it."""
