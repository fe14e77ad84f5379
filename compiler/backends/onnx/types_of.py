"""The element types of the values of a model, node by node; None for what is not known here."""

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto

from xformc.compiler.backends.onnx.graphs import inner_graphs
from xformc.compiler.backends.onnx.standard import BOOL, FLOAT, INT64, result_types
from xformc.format.operators import DOMAIN

_INT8, _FLOAT16 = TensorProto.INT8, TensorProto.FLOAT16

_CANDIDATES = (FLOAT, INT64, INT64)
KERNELS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Project", "Embed", "Attend", "AttendCached", "ExtendCached", "Normalize", "Rotate"), (FLOAT,)),
    **dict.fromkeys(("Add", "Multiply", "RowAt", "Cache"), (FLOAT,)),
    **dict.fromkeys(("Narrow", "CacheNarrow"), (_FLOAT16,)),
    **dict.fromkeys(("QuantizeRows", "CacheInt8"), (_INT8,)),
    **dict.fromkeys(("Candidates", "ProjectCandidates", "ScreenCandidates", "ShortlistCandidates"), _CANDIDATES),
    "Last": (INT64,),
    "DrawToken": (INT64, FLOAT),
    "Shortlist": (INT64, _INT8, FLOAT, FLOAT),
    "Advance": (BOOL, INT64, BOOL, INT64, FLOAT, INT64, INT64, FLOAT, INT64, INT64),
}
"""The element types of the results of each operator of docs/kernels.md; the last one is that of any further ones."""


def types_of(node: onnx.NodeProto, known: Mapping[str, int | None]) -> Sequence[int | None]:
    """The types of a node's results, by those of its inputs."""
    if node.domain == DOMAIN:
        own = KERNELS.get(node.op_type, ())
        return [own[min(place, len(own) - 1)] if own else None for place in range(len(node.output))]
    inner = inner_graphs(node)
    if inner:
        results = inner[0].output[1:] if node.op_type == "Loop" else inner[0].output
        return [value.type.tensor_type.elem_type or None for value in results]
    return result_types(node, known)
