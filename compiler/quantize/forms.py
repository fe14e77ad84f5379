"""How a parameter may stand in a model's file: under which names, as which numbers, and back to float32.

| name | numbers | shape |
|---|---|---|
| `path` | float32 | any of as many numbers |
| `path` | float16, bfloat16 | [new, width] |
| `path`, `path.scale` | int8, float32 | [new, width], [new] |
| `path`, `path.scale` | int4, float32 | [new, width], [new, blocks] |
| `path`, `path.scale` | float8 (E4M3FN), float32 | [new, width], [] |
| `path.blocks`, `path.scale` | uint8 (two numbers each), float32 | [new, blocks, 16], [new, blocks] |
| `path.panels` | float32, uint16 (bfloat16) | [panels, width, 32] |
| `path.fp16_panels` | uint16 (float16) | [panels, width, 32] |
| `path.panels`, `path.scale` | uint8, float32 | [panels, quads, 32, 4], [new] |
| `path.int4_panels`, `path.scale` | uint8 (two each), float32 | [panels, blocks, 4, 32, 4], [panels, blocks, 32] |

`new * width` is how many numbers the parameter has; panels are those of docs/kernels.md. Where a product with the
parameter rounds what it is given in steps that a calibration found, `path.input_scale`, float32 [], is such a step.
What screens products with a float32 matrix is beside it: `path.screen`, int16 [panels, pairs, 32, 2], and float32
`path.screen_scale` [new] and `path.screen_largest` [2].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from xformc.compiler.quantize import rounding
from xformc.compiler.quantize.screening import PAIR, screen
from xformc.format.precision import Precision

Matrix = rounding.Floats
PANELS, FLOAT16_PANELS, INT4_PANELS, BLOCKS = ".panels", ".fp16_panels", ".int4_panels", ".blocks"
SCALE, INPUT_SCALE = ".scale", ".input_scale"
"""What is put behind a parameter's path; a path has no dot."""

SCREEN = ".screen"
"""What is put there for what only screens; with something more behind it for its scale and its margins."""


@dataclass(frozen=True)
class Form:
    """One tensor of a file: ONNX's number for its type, its shape, and its bytes as they stand there."""

    dtype: int
    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return (prod(self.shape) * BITS[self.dtype] + 7) // 8


BITS: dict[int, int] = {
    TensorProto.FLOAT: 32,
    TensorProto.FLOAT16: 16,
    TensorProto.BFLOAT16: 16,
    TensorProto.UINT16: 16,
    TensorProto.INT16: 16,
    TensorProto.INT8: 8,
    TensorProto.UINT8: 8,
    TensorProto.INT4: 4,
    TensorProto.FLOAT8E4M3FN: 8,
}
"""The bits of a number of each type that a parameter may be stored in."""

_HALVES: dict[Precision, Callable[[Matrix], NDArray[Any]]] = {
    "float32": lambda matrix: matrix,
    "float16": rounding.to_float16,
    "bfloat16": rounding.to_bfloat16,
}
_PLAIN = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def plain(array: Callable[[], Matrix], shape: tuple[int, ...]) -> Form:
    """float32, in this shape."""
    return Form(TensorProto.FLOAT, shape, array)


def rows(path: str, matrix: Callable[[], Matrix], new: int, width: int, precision: Precision) -> dict[str, Form]:
    """The tensors of a matrix [new, width] that standard operators take."""
    if precision == "int8":
        return {
            path: Form(TensorProto.INT8, (new, width), lambda: rounding.round_rows(matrix())[0]),
            path + SCALE: Form(TensorProto.FLOAT, (new,), lambda: rounding.round_rows(matrix())[1]),
        }
    if precision == "int4":
        return {
            path: Form(TensorProto.INT4, (new, width), lambda: _nibbles(matrix())),
            path + SCALE: _block_scale(matrix, new, width),
        }
    if precision == "float8":
        return {
            path: Form(TensorProto.FLOAT8E4M3FN, (new, width), lambda: rounding.round_float8(matrix())[0]),
            path + SCALE: Form(TensorProto.FLOAT, (), lambda: rounding.round_float8(matrix())[1]),
        }
    return {path: Form(_PLAIN[precision], (new, width), lambda: _HALVES[precision](matrix()))}


def input_scale(path: str, value: float) -> dict[str, Form]:
    """The tensor of the step in which a product with this parameter rounds what it is given."""
    return {path + INPUT_SCALE: plain(lambda: np.array(value, np.float32), ())}


def blocks(path: str, matrix: Callable[[], Matrix], new: int, width: int) -> dict[str, Form]:
    """The tensors of a matrix [new, width] in int4 that com.microsoft's MatMulNBits takes."""
    count = -(-width // rounding.BLOCK)
    pairs = Form(
        TensorProto.UINT8, (new, count, rounding.BLOCK // 2), lambda: rounding.pair(rounding.round_blocks(matrix())[0])
    )
    return {path + BLOCKS: pairs, path + SCALE: _block_scale(matrix, new, width)}


def panels(path: str, matrix: Callable[[], Matrix], new: int, width: int, precision: Precision) -> dict[str, Form]:
    """The tensors of a matrix [new, width] in panels; for every precision but float8, which has none."""
    count, quads = -(-new // rounding.PANEL), -(-width // rounding.QUAD)
    if precision == "int4":
        made = cache(lambda: rounding.nibble_panels(*rounding.round_blocks(matrix())))
        blocks = -(-width // rounding.BLOCK)
        return {
            path + INT4_PANELS: Form(TensorProto.UINT8, (count, blocks, *rounding.NIBBLES), lambda: made()[0]),
            path + SCALE: Form(TensorProto.FLOAT, (count, blocks, rounding.PANEL), lambda: made()[1]),
        }
    if precision == "int8":
        shape = (count, quads, rounding.PANEL, rounding.QUAD)
        bytes_ = Form(TensorProto.UINT8, shape, lambda: rounding.byte_panels(rounding.round_rows(matrix())[0]))
        scale = Form(TensorProto.FLOAT, (new,), lambda: rounding.round_rows(matrix())[1])
        return {path + PANELS: bytes_, path + SCALE: scale}
    shape = (count, width, rounding.PANEL)
    if precision == "float32":
        return {path + PANELS: Form(TensorProto.FLOAT, shape, lambda: rounding.panels(matrix()))}
    name = path + (FLOAT16_PANELS if precision == "float16" else PANELS)
    return {name: Form(TensorProto.UINT16, shape, lambda: rounding.panels(_HALVES[precision](matrix())))}


def screened(path: str, matrix: Callable[[], Matrix], new: int, width: int) -> dict[str, Form]:
    """The tensors that ScreenCandidates takes beside a matrix [new, width] in float32."""
    made = cache(lambda: screen(matrix()))
    panels = (-(-new // rounding.PANEL), -(-width // PAIR), rounding.PANEL, PAIR)
    return {
        path + SCREEN: Form(TensorProto.INT16, panels, lambda: made().panels),
        path + SCREEN + "_scale": Form(TensorProto.FLOAT, (new,), lambda: made().scale),
        path + SCREEN + "_largest": Form(TensorProto.FLOAT, (2,), lambda: made().largest),
    }


def restore(path: str, sizes: tuple[int, ...], stored: Mapping[str, tuple[int, NDArray[Any]]]) -> NDArray[np.float32]:
    """The parameter in float32, in its natural shape, from the tensors of a file: (ONNX's type, array) by name.

    Raises: KeyError where there is none of it; ValueError where it is in no form that this file knows.
    """
    count = prod(sizes)
    for suffix, reader in _READERS.items():
        if path + suffix in stored:
            dtype, array = stored[path + suffix]
            scale = stored.get(path + SCALE)
            found = reader(dtype, array, None if scale is None else scale[1], count)
            if found is None or found.size != count:
                kind = TensorProto.DataType.Name(dtype)
                raise ValueError(f"{path + suffix} is {kind} {list(array.shape)}, which is no form of {list(sizes)}")
            return np.ascontiguousarray(found, np.float32).reshape(sizes)
    raise KeyError(path)


def precision_of(path: str, kinds: Mapping[str, int]) -> Precision | None:
    """In which numbers a file holds the parameter, by ONNX's types of its tensors; None where it is in no form."""
    return next((_STORED.get((suffix, kinds[path + suffix])) for suffix in FORMS if path + suffix in kinds), None)


_STORED: dict[tuple[str, int], Precision] = {
    ("", TensorProto.FLOAT): "float32",
    ("", TensorProto.FLOAT16): "float16",
    ("", TensorProto.BFLOAT16): "bfloat16",
    ("", TensorProto.INT8): "int8",
    ("", TensorProto.INT4): "int4",
    ("", TensorProto.FLOAT8E4M3FN): "float8",
    (BLOCKS, TensorProto.UINT8): "int4",
    (INT4_PANELS, TensorProto.UINT8): "int4",
    (PANELS, TensorProto.FLOAT): "float32",
    (PANELS, TensorProto.UINT16): "bfloat16",
    (PANELS, TensorProto.UINT8): "int8",
    (FLOAT16_PANELS, TensorProto.UINT16): "float16",
}

_Scale = NDArray[Any] | None


def _read_rows(dtype: int, array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    if dtype in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return array
    if dtype == TensorProto.BFLOAT16:
        return rounding.from_bfloat16(array)
    if array.ndim != 2 or scale is None:
        return None
    return _read_scaled(dtype, array, scale)


def _read_scaled(dtype: int, array: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any] | None:
    new, width = array.shape
    if dtype == TensorProto.FLOAT8E4M3FN and scale.shape == ():
        return rounding.restore_float8(array, scale)
    if dtype == TensorProto.INT8 and scale.shape == (new,):
        return rounding.restore_rows(array, scale)
    if dtype == TensorProto.INT4 and scale.shape == (new, -(-width // rounding.BLOCK)):
        return array.astype(np.float32) * np.repeat(scale, rounding.BLOCK, 1)[:, :width]
    return None


def _read_blocks(dtype: int, array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    if dtype != TensorProto.UINT8 or array.ndim != 3 or scale is None or scale.shape != array.shape[:2]:
        return None
    new, _, pairs = array.shape
    if not new or count % new or pairs * 2 != rounding.BLOCK:
        return None
    return rounding.restore_blocks(rounding.unpair(array), scale, count // new)


def _read_panels(dtype: int, array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    if dtype == TensorProto.UINT8:
        return _read_byte_panels(array, scale, count)
    matrix = _matrix(array, count) if dtype in (TensorProto.FLOAT, TensorProto.UINT16) else None
    return rounding.from_bfloat16(matrix) if matrix is not None and dtype == TensorProto.UINT16 else matrix


def _read_float16(dtype: int, array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    matrix = _matrix(array, count) if dtype == TensorProto.UINT16 else None
    return None if matrix is None else matrix.view(np.float16)


def _matrix(panels: NDArray[Any], count: int) -> NDArray[Any] | None:
    """The matrix of so many numbers that is in the panels, or None where it cannot be."""
    if panels.ndim != 3 or not panels.shape[1] or count % panels.shape[1]:
        return None
    new = count // panels.shape[1]
    if panels.shape[0] != -(-new // rounding.PANEL) or panels.shape[2] != rounding.PANEL:
        return None
    return np.ascontiguousarray(rounding.from_panels(panels, new))


def _read_byte_panels(array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    if scale is None or scale.ndim != 1 or not scale.size or count % scale.size:
        return None
    new, width = scale.size, count // scale.size
    if array.shape != (-(-new // rounding.PANEL), -(-width // rounding.QUAD), rounding.PANEL, rounding.QUAD):
        return None
    return rounding.restore_rows(rounding.from_byte_panels(array, new, width), scale)


def _read_nibble_panels(dtype: int, array: NDArray[Any], scale: _Scale, count: int) -> NDArray[Any] | None:
    if dtype != TensorProto.UINT8 or array.ndim != 5 or array.shape[2:] != rounding.NIBBLES or scale is None:
        return None
    if scale.shape != (*array.shape[:2], rounding.PANEL) or 0 in scale.shape:
        return None
    rounded, scales = rounding.from_nibble_panels(array, scale)
    new, blocks, _ = rounded.shape
    if not new or count % new or -(-(count // new) // rounding.BLOCK) != blocks:
        return None
    return rounding.restore_blocks(rounded, scales, count // new)


_READERS = {
    "": _read_rows,
    PANELS: _read_panels,
    FLOAT16_PANELS: _read_float16,
    INT4_PANELS: _read_nibble_panels,
    BLOCKS: _read_blocks,
}
FORMS = tuple(_READERS)
"""The names of a parameter's numbers, of which a model holds one."""


def _block_scale(matrix: Callable[[], Matrix], new: int, width: int) -> Form:
    return Form(TensorProto.FLOAT, (new, -(-width // rounding.BLOCK)), lambda: rounding.round_blocks(matrix())[1])


def _nibbles(matrix: Matrix) -> NDArray[np.uint8]:
    """ONNX's int4: two numbers a byte, the first in the lower half, rows after each other without a gap."""
    new, width = matrix.shape
    flat = rounding.round_blocks(matrix)[0].reshape(new, -1)[:, :width].reshape(-1)
    return rounding.pair(np.pad(flat, (0, flat.size % 2))) ^ _SIGNS


def from_nibbles(pairs: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The numbers of ONNX's int4, two for each byte."""
    return rounding.unpair(pairs ^ _SIGNS)


_SIGNS = np.uint8(0x88)
"""Turns `q + 8` of both halves of a byte into two's complement, and back."""
