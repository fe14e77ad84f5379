"""The element types of the values of a model, node by node; None for what is not known here."""

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto

from xformc.compiler.backends.onnx.graphs import inner_graphs
from xformc.format.operators import DOMAIN

FLOAT, INT64, INT8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.BOOL
_FLOAT16 = TensorProto.FLOAT16

_CANDIDATES = (FLOAT, INT64, INT64)
KERNELS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Project", "Embed", "Attend", "AttendCached", "ExtendCached", "Normalize", "Rotate"), (FLOAT,)),
    **dict.fromkeys(("Add", "Multiply", "RowAt", "Cache"), (FLOAT,)),
    **dict.fromkeys(("Narrow", "CacheNarrow"), (_FLOAT16,)),
    **dict.fromkeys(("QuantizeRows", "CacheInt8"), (INT8,)),
    **dict.fromkeys(("Candidates", "ProjectCandidates", "ScreenCandidates", "ShortlistCandidates"), _CANDIDATES),
    "Last": (INT64,),
    "DrawToken": (INT64, FLOAT),
    "Shortlist": (INT64, INT8, FLOAT, FLOAT),
    "Advance": (BOOL, INT64, BOOL, INT64, FLOAT, INT64, INT64, FLOAT, INT64, INT64),
}
"""The element types of the results of each operator of docs/kernels.md; the last one is that of any further ones."""

_FLAGS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not", "IsNaN"})
_INTEGERS = frozenset({"Shape", "Size", "NonZero", "ArgMax", "ArgMin"})
_SAME = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Max",
        "Min",
        "Neg",
        "Abs",
        "Clip",
        "Floor",
        "Identity",
        "Squeeze",
        "Unsqueeze",
        "Reshape",
    }
    | {"Transpose", "Expand", "Range", "Concat", "Slice", "Pad", "Gather", "GatherElements", "ScatterND", "CumSum"}
    | {"ReduceSum", "ReduceMax", "ReduceMin", "ScatterElements", "Sin", "Cos", "Exp", "Log", "Softmax", "MatMul"}
)


def types_of(node: onnx.NodeProto, known: Mapping[str, int | None]) -> Sequence[int | None]:
    """The types of a node's results, by those of its inputs."""
    count, first = len(node.output), known.get(node.input[0]) if node.input else None
    if node.domain == DOMAIN:
        own = KERNELS.get(node.op_type, ())
        return [own[min(place, len(own) - 1)] if own else None for place in range(count)]
    inner = inner_graphs(node)
    if inner:
        results = inner[0].output[1:] if node.op_type == "Loop" else inner[0].output
        return [value.type.tensor_type.elem_type or None for value in results]
    return [first, INT64] if node.op_type == "TopK" else [_standard(node, first, known)] * count


def _standard(node: onnx.NodeProto, first: int | None, known: Mapping[str, int | None]) -> int | None:
    """The type of the result of an operator of ONNX, whose first input has this type."""
    if node.op_type in _FLAGS | _INTEGERS:
        return BOOL if node.op_type in _FLAGS else INT64
    if node.op_type == "Where":
        return known.get(node.input[1])
    if node.op_type == "Cast":
        return next(one.i for one in node.attribute if one.name == "to")
    return first if node.op_type in _SAME else None
