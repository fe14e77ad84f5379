"""Best-path decoding of CTC in ONNX: the most likely token of each position, repeats merged, blanks removed."""

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.ctc import BLANK

INT64 = 7


def emit_best_path(onnx: OnnxEmitter, logits: str) -> tuple[str, str, str]:
    """The outputs for logits [batch, positions, tokens] (Graves et al. 2006, section 3.2).

    Returns tokens [batch, 1, length], lengths [batch, 1] and scores [batch, 1], which are the log probability of the
    best path.
    """
    best = onnx.op("ReduceMax", onnx.op("LogSoftmax", logits, axis=-1), [-1], keepdims=0)
    # Added in order, so that padding, which is 0, does not change the last bits.
    scores = onnx.op("Slice", onnx.op("CumSum", best, 1), [-1], [2**31], [1])
    path = onnx.op("ArgMax", logits, axis=-1, keepdims=0)
    before = onnx.op("Pad", onnx.op("Slice", path, [0], [-1], [1]), [0, 1, 0, 0], BLANK)
    written = onnx.op(
        "And", onnx.op("Not", onnx.op("Equal", path, BLANK)), onnx.op("Not", onnx.op("Equal", path, before))
    )
    ones = onnx.op("Cast", written, to=INT64)
    lengths = onnx.op("ReduceSum", ones, [-1], keepdims=1)
    beyond = onnx.op("Shape", path, start=1, end=2)
    places = onnx.op("Where", written, onnx.op("Sub", onnx.op("CumSum", ones, 1), 1), beyond)
    empty = onnx.op("Mul", onnx.op("Pad", path, [0, 0, 0, 1], BLANK), 0)
    row = onnx.op("ScatterElements", empty, places, path, axis=1)
    tokens = onnx.op("Slice", row, [0], longest(onnx, lengths), [1])
    return onnx.op("Unsqueeze", tokens, [1]), lengths, scores


def longest(onnx: OnnxEmitter, lengths: str) -> str:
    """The largest of some lengths, but at least 1, as a vector of one number."""
    return onnx.op("Reshape", onnx.op("Max", onnx.op("ReduceMax", lengths, keepdims=0), 1), [1])
