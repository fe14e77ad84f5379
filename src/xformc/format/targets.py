"""The targets of engines and their features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Target = Literal["portable", "cpu", "native", "cuda", "tensorrt"]
TARGETS: tuple[Target, ...] = get_args(Target)

TargetWord = Literal["auto", Target]
"""What a user may ask for. `auto` is native with usable kernels, else cpu; engines record the target that it chose."""


@dataclass(frozen=True)
class Traits:
    """The features of a target.

    contrib: models use ONNX Runtime's own operators (com.microsoft). kernels: models use the operators of
    docs/kernels.md. fixed: searches have fixed shapes, run on a GPU, and may be driven step by step. typed: matrix
    products are computed in the number format of their weights. calibrated: matrix products may quantize activations
    with calibrated scales. plans: models are built into TensorRT plans. in_place: a step writes into its fixed caches,
    if its input and its output are the same memory.
    """

    contrib: bool = False
    kernels: bool = False
    fixed: bool = False
    typed: bool = False
    calibrated: bool = False
    plans: bool = False
    in_place: bool = False


TRAITS: Mapping[Target, Traits] = {
    "portable": Traits(),
    "cpu": Traits(contrib=True),
    "native": Traits(contrib=True, kernels=True),
    "cuda": Traits(fixed=True, typed=True, in_place=True),
    "tensorrt": Traits(fixed=True, typed=True, calibrated=True, plans=True),
}
"""The features of each target. No other code distinguishes targets by name."""

BUILD_FOR_CPUS = "build with --target native, cpu or portable"
"""The hint of what targets of fixed shapes lack."""
