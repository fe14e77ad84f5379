"""The table of number formats; reads a parameter in any format from the tensors of a file."""

from collections.abc import Container, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.float8 import Float8
from xformc.compiler.quantize.float32 import Float32
from xformc.compiler.quantize.halves import BFloat16, Float16
from xformc.compiler.quantize.int4 import Int4
from xformc.compiler.quantize.int8 import Int8
from xformc.compiler.quantize.number_format import NumberFormat
from xformc.compiler.quantize.stored import Layout
from xformc.format.precision import Precision

FORMATS: dict[Precision, NumberFormat] = {
    format.precision: format for format in (Float32(), Int8(), Float8(), Int4(), Float16(), BFloat16())
}
"""The number formats by their names in engine.json, in the order of the certificate's stages."""


def suffixes() -> tuple[str, ...]:
    """The suffixes after a parameter's path in the names of its values."""
    return tuple(dict.fromkeys(suffix for suffix, _ in _readable()))


def tensors(path: str) -> set[str]:
    """The names that a parameter's tensors may have."""
    suffixes = ((layout.suffix, *layout.beside) for _, layout in _readable().values())
    return {path + suffix for several in suffixes for suffix in several}


def restore(path: str, sizes: tuple[int, ...], stored: Mapping[str, tuple[int, NDArray[Any]]]) -> NDArray[np.float32]:
    """The parameter in float32, in its original shape, from the tensors of a file: (ONNX type, array) by name.

    Raises: KeyError if it is missing; ValueError if no layout of a number format matches.
    """
    suffix = _suffix(path, stored)
    if suffix is None:
        raise KeyError(path)
    element, array = stored[path + suffix]
    found = None
    if (known := _readable().get((suffix, element))) is not None:
        _, layout = known
        found = layout.restore(array, *(stored.get(path + name, (0, None))[1] for name in layout.beside), prod(sizes))
    if found is None or found.size != prod(sizes):
        what = f"{Element(element).name} {list(array.shape)}"
        raise ValueError(f"{path + suffix} is {what}, which is not a layout of {list(sizes)}")
    return np.ascontiguousarray(found, np.float32).reshape(sizes)


def precision_of(path: str, elements: Mapping[str, int]) -> Precision | None:
    """The number format of a parameter in a file, from the ONNX types of its tensors; None if unknown."""
    suffix = _suffix(path, elements)
    known = None if suffix is None else _readable().get((suffix, elements[path + suffix]))
    return None if known is None else known[0]


def _suffix(path: str, names: Container[str]) -> str | None:
    return next((suffix for suffix in suffixes() if path + suffix in names), None)


def _readable() -> dict[tuple[str, int], tuple[Precision, Layout]]:
    """The layouts and their formats, by the suffix and type of the values."""
    return {
        (layout.suffix, layout.element): (format.precision, layout)
        for format in FORMATS.values()
        for layout in format.layouts.values()
    }
