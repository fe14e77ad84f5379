"""Nodes of ONNX's own operators, drawn at random, as ONNX Runtime takes them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from numpy.typing import DTypeLike
from onnx import helper

from tests.runtime.kernel_session import Array
from xformc.compiler.backends.onnx.emitter import VERSIONS

FLOAT, INT = np.float32, np.int64
Drawn = tuple[Sequence[Array | None], dict[str, Any]]
"""The inputs and the attributes of a node."""


def shape_of(random: Generator, axes: int | None = None) -> list[int]:
    count = int(random.integers(0, 5)) if axes is None else axes
    return [int(one) for one in random.choice([0, 1, 2, 3, 7], count, p=[0.05, 0.25, 0.25, 0.25, 0.2])]


def values(random: Generator, shape: Sequence[int], kind: DTypeLike) -> Array:
    if kind == FLOAT:
        return np.asarray(np.round(random.standard_normal(shape) * 3, 1), FLOAT)
    return np.asarray(random.integers(-4, 5, shape) if kind == INT else np.less(random.random(shape), 0.5))


def alike(random: Generator, shape: Sequence[int]) -> list[int]:
    """A shape that is repeated to this one: some of its last axes, some of them 1."""
    first = int(random.integers(0, len(shape) + 1))
    return [1 if random.random() < 0.3 else size for size in shape[first:]]


def pair(*kinds: DTypeLike) -> Callable[[Generator], Drawn]:
    def draw(random: Generator) -> Drawn:
        kind, shape = kinds[random.integers(len(kinds))], shape_of(random)
        both = [values(random, one, kind) for one in (shape, alike(random, shape))]
        return ([*both] if random.random() < 0.5 else both[::-1]), {}

    return draw


def divided(random: Generator) -> Drawn:
    inputs, _ = pair(FLOAT, INT)(random)
    assert inputs[1] is not None
    return [inputs[0], np.where(inputs[1] == 0, 1, inputs[1]).astype(inputs[1].dtype)], {}


def divided_integers(random: Generator) -> Drawn:
    inputs, _ = pair(INT)(random)
    assert inputs[1] is not None
    return [inputs[0], np.where(inputs[1] == 0, 1, inputs[1])], {}


def single(*kinds: DTypeLike) -> Callable[[Generator], Drawn]:
    return lambda random: ([values(random, shape_of(random), kinds[random.integers(len(kinds))])], {})


def clip(random: Generator) -> Drawn:
    inputs, _ = single(FLOAT, INT)(random)
    assert inputs[0] is not None
    return [inputs[0], *(np.array(one, inputs[0].dtype) for one in sorted(random.integers(-3, 4, 2)))], {}


def where(random: Generator) -> Drawn:
    shape, kind = shape_of(random), (FLOAT, INT)[random.integers(2)]
    parts = [values(random, alike(random, shape), one) for one in (np.bool_, kind, kind)]
    return [*parts], {}


def cast(random: Generator) -> Drawn:
    x = values(random, shape_of(random), (FLOAT, INT, np.bool_)[random.integers(3)])
    x = x.astype(np.int32) if x.dtype == INT and random.random() < 0.3 else x
    to = (onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    return [x], {"to": int(random.choice(to))}


def shape(random: Generator) -> Drawn:
    bounds = {name: int(random.integers(-5, 6)) for name in ("start", "end") if random.random() < 0.5}
    return [values(random, shape_of(random), INT)], bounds


def squeeze(random: Generator) -> Drawn:
    x = values(random, shape_of(random), FLOAT)
    ones = [axis - x.ndim * int(random.random() < 0.5) for axis, size in enumerate(x.shape) if size == 1]
    return [x, None if random.random() < 0.3 else np.array(ones[: int(random.integers(0, 5))], INT)], {}


def unsqueeze(random: Generator) -> Drawn:
    x, more = values(random, shape_of(random), FLOAT), int(random.integers(0, 3))
    axes = random.permutation(x.ndim + more)[:more]
    return [x, (axes - (x.ndim + more) * (random.random(more) < 0.5)).astype(INT)], {}


def reshape(random: Generator) -> Drawn:
    x = values(random, shape_of(random), INT)
    wanted = [*x.shape][::-1] if 0 not in x.shape else [0] * x.ndim
    if wanted and 0 not in x.shape and random.random() < 0.5:
        wanted[int(random.integers(len(wanted)))] = -1
    return [x, np.array(wanted, INT)], {}


def transpose(random: Generator) -> Drawn:
    x = values(random, shape_of(random, int(random.integers(1, 5))), (FLOAT, np.bool_)[random.integers(2)])
    return [x], {"perm": [int(one) for one in random.permutation(x.ndim)]}


def expand(random: Generator) -> Drawn:
    wanted = shape_of(random)
    return [values(random, alike(random, wanted), FLOAT), np.array(wanted, INT)], {}


def ranges(random: Generator) -> Drawn:
    start, end, step = (int(one) for one in random.integers(-9, 10, 3))
    return [np.array(one) for one in (start, end, step or 1)], {}


def concat(random: Generator) -> Drawn:
    first = shape_of(random, int(random.integers(1, 4)))
    axis = int(random.integers(len(first)))
    sizes = [int(one) for one in random.integers(0, 4, int(random.integers(2, 5)))]
    parts = [values(random, [*first[:axis], size, *first[axis + 1 :]], INT) for size in sizes]
    return [*parts], {"axis": axis - len(first) * int(random.random() < 0.5)}


def slices(random: Generator) -> Drawn:
    x = values(random, shape_of(random, int(random.integers(1, 4))), FLOAT)
    axes = random.permutation(x.ndim)[: int(random.integers(1, x.ndim + 1))]
    starts, ends = random.integers(-9, 9, (2, len(axes)))
    ends[random.random(len(axes)) < 0.3] = 2**31
    return [x, starts, ends, axes.astype(INT)], {}


def pad(random: Generator) -> Drawn:
    x = values(random, shape_of(random, int(random.integers(1, 4))), (FLOAT, INT)[random.integers(2)])
    pads = random.integers(0, 3, (2, x.ndim))
    for axis, size in enumerate(x.shape):
        if size > 2 and random.random() < 0.3:
            pads[random.integers(2), axis] = -1
    return [x, pads.reshape(-1), None if random.random() < 0.5 else values(random, (), x.dtype.type)], {}


def gather(random: Generator) -> Drawn:
    sizes = [max(1, one) for one in shape_of(random, int(random.integers(1, 4)))]
    axis = int(random.integers(len(sizes)))
    places = random.integers(-sizes[axis], sizes[axis], shape_of(random, int(random.integers(0, 3))))
    return [values(random, sizes, (FLOAT, INT, np.bool_)[random.integers(3)]), np.array(places)], {"axis": axis}


def gather_elements(random: Generator) -> Drawn:
    sizes = [max(1, one) for one in shape_of(random, int(random.integers(1, 4)))]
    axis = int(random.integers(len(sizes)))
    some = [int(random.integers(0, 5)) if i == axis else int(random.integers(1, n + 1)) for i, n in enumerate(sizes)]
    return [values(random, sizes, FLOAT), random.integers(-sizes[axis], sizes[axis], some)], {"axis": axis}


def scatter(random: Generator) -> Drawn:
    sizes = [max(1, one) for one in shape_of(random, int(random.integers(1, 4)))]
    depth, rows = int(random.integers(1, len(sizes) + 1)), int(random.integers(0, 4))
    places = np.stack([random.integers(0, size, rows) for size in sizes[:depth]], -1)
    return [values(random, sizes, INT), places, values(random, [rows, *sizes[depth:]], INT)], {}


def reduce(*kinds: DTypeLike, empty: bool = False) -> Callable[[Generator], Drawn]:
    def draw(random: Generator) -> Drawn:
        sizes = [one if empty else max(1, one) for one in shape_of(random)]
        x = values(random, sizes, kinds[random.integers(len(kinds))])
        axes = random.permutation(x.ndim)[: int(random.integers(1, x.ndim + 1))] if x.ndim else np.zeros(0)
        listed = None if random.random() < 0.3 or not x.ndim else axes.astype(INT)
        return [x, listed], {"keepdims": int(random.integers(2))}

    return draw


def top(random: Generator) -> Drawn:
    x = values(random, [max(1, one) for one in shape_of(random, int(random.integers(1, 4)))], FLOAT)
    return [x, np.array([int(random.integers(0, x.shape[-1] + 1))])], {"axis": -1}


NODES: dict[str, Callable[[Generator], Drawn]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), pair(FLOAT, INT)),
    **dict.fromkeys(("Max", "Min"), pair(FLOAT, INT)),
    "Equal": pair(FLOAT, INT, np.bool_),
    "Div": divided,
    "Mod": divided_integers,
    **dict.fromkeys(("And", "Or"), pair(np.bool_)),
    "Not": single(np.bool_),
    **dict.fromkeys(("Floor", "Sin", "Cos"), single(FLOAT)),
    **dict.fromkeys(("Neg", "Abs"), single(FLOAT, INT)),
    "Clip": clip,
    **dict.fromkeys(("Identity", "Size"), single(FLOAT, INT, np.bool_)),
    "NonZero": lambda random: ([values(random, shape_of(random, int(random.integers(1, 4))), np.bool_)], {}),
    "Where": where,
    "Cast": cast,
    "Shape": shape,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Reshape": reshape,
    "Transpose": transpose,
    "Expand": expand,
    "Range": ranges,
    "Concat": concat,
    "Slice": slices,
    "Pad": pad,
    "Gather": gather,
    "GatherElements": gather_elements,
    "ScatterND": scatter,
    "ReduceSum": reduce(INT, empty=True),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), reduce(INT, empty=True)),
    "TopK": top,
}
"""What draws a node of each operator that a Sequence may have."""


def drawn(kind: str, random: Generator) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """A node of this kind, and its inputs by name."""
    inputs, attributes = NODES[kind](random)
    feeds = {f"x{place}": one for place, one in enumerate(inputs) if one is not None}  # only the last is ever left out
    return helper.make_node(kind, list(feeds), ["y", "order"] if kind == "TopK" else ["y"], **attributes), feeds


def result_types(node: onnx.NodeProto, feeds: dict[str, Array]) -> dict[str, DTypeLike]:
    """The types of the results of a node, as ONNX infers them."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    model = helper.make_model(
        helper.make_graph([node], "node", infos, outputs), opset_imports=[helper.make_opsetid("", VERSIONS[""])]
    )
    found = onnx.shape_inference.infer_shapes(model).graph.output
    return {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in found}
