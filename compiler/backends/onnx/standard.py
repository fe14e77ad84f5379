"""What a Sequence knows of ONNX's own operators (docs/kernels.md), and the types of their results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FIRST, SECOND, TO = -1, -2, -3
"""Types of results: that of the first or the second input, or what the attribute `to` says."""

KNOWN = frozenset({FLOAT, INT64, BOOL, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32})
"""The types of tensors in a Sequence: those whose sizes the kernels know."""
_NUMBERS = frozenset({FLOAT, INT64})
_CAST = _NUMBERS | {BOOL, TensorProto.INT32}


@dataclass(frozen=True)
class Standard:
    """An operator of ONNX, in the forms that a Sequence knows.

    first: the types of its first input; none for any that is known.
    attributes: those that it may have.
    inputs: how many it may have; none for any.
    lists: whether its second input is a list of int64, if there is one.
    exact: whether it computes the bits of ONNX Runtime's, which for some depend on a number's place among others.
    result: the type of its results.
    """

    first: Collection[int] = ()
    attributes: Collection[str] = ()
    inputs: Collection[int] = ()
    lists: bool = False
    exact: bool = True
    result: int = FIRST

    def fits(self, node: onnx.NodeProto, types: Sequence[int | None]) -> bool:
        """Whether a node of the operator, whose inputs have these types, has such a form."""
        values = {one.name: one for one in node.attribute}
        return (
            KNOWN.issuperset(types)
            and (not self.first or types[0] in self.first)
            and values.keys() <= {*self.attributes}
            and (not self.inputs or len(types) == len(node.input) in self.inputs)
            and (not self.lists or types[1:2] in ([], [INT64]))
            and (node.op_type != "Transpose" or "perm" in values)
            and (node.op_type != "Cast" or values["to"].i in _CAST)
            and (node.op_type != "TopK" or "axis" not in values or values["axis"].i == -1)
        )


def _each(names: str, operator: Standard) -> dict[str, Standard]:
    return dict.fromkeys(names.split(), operator)


STANDARD: Mapping[str, Standard] = {
    **_each("Add Sub Mul Div Neg Abs", Standard(_NUMBERS)),
    **_each("Max Min", Standard(_NUMBERS, inputs=(2,))),
    **_each("Less LessOrEqual Greater GreaterOrEqual", Standard(_NUMBERS, result=BOOL)),
    **_each("And Or Not", Standard({BOOL})),
    **_each("Mod Range", Standard({INT64})),
    **_each("Sin Cos", Standard({FLOAT}, exact=False)),
    **_each("Squeeze Unsqueeze Reshape Expand ScatterND", Standard(lists=True)),
    **_each("Gather GatherElements", Standard(attributes=("axis",), lists=True)),
    **_each("ReduceSum ReduceMax ReduceMin", Standard({INT64}, ("keepdims",))),
    "Cast": Standard(_CAST, ("to",), result=TO),
    "Clip": Standard(_NUMBERS, inputs=(3,)),
    "Concat": Standard(attributes=("axis",)),
    "Equal": Standard({*_NUMBERS, BOOL}, result=BOOL),
    "Floor": Standard({FLOAT}),
    "Identity": Standard(),
    "NonZero": Standard({BOOL}, result=INT64),
    "Pad": Standard(inputs=(2, 3), lists=True),
    "Shape": Standard(attributes=("start", "end"), result=INT64),
    "Size": Standard(result=INT64),
    "Slice": Standard(inputs=(4,), lists=True),
    "TopK": Standard({FLOAT}, ("axis",), lists=True),
    "Transpose": Standard(attributes=("perm",)),
    "Where": Standard(result=SECOND),
}
"""The operators of ONNX that a Sequence may have. Those that add up floats are missing: the last bit of a sum depends
on its order, which is ONNX Runtime's own."""

_OTHERS: Mapping[str, int] = {
    **dict.fromkeys(("CumSum", "ScatterElements", "Exp", "Log", "Softmax", "MatMul"), FIRST),
    **dict.fromkeys(("ArgMax", "ArgMin"), INT64),
    "IsNaN": BOOL,
}


def result_types(node: onnx.NodeProto, known: Mapping[str, int | None]) -> list[int | None]:
    """The types of the results of a node of ONNX, by those of its inputs; None for one that is not known here."""
    operator = STANDARD.get(node.op_type)
    rule = _OTHERS.get(node.op_type) if operator is None else operator.result
    if rule in (FIRST, SECOND):
        found = known.get(node.input[0 if rule == FIRST else 1])
    elif rule == TO:
        found = next(one.i for one in node.attribute if one.name == "to")
    else:
        found = rule
    # The second result of TopK are places.
    return [found if place == 0 or node.op_type != "TopK" else INT64 for place in range(len(node.output))]
