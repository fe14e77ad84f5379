"""The parts in which given texts are read, so that their length does not bound the memory."""

from dataclasses import dataclass

from xformc.compiler.graph.rules import OnnxEmitter, Operand

READ_TOGETHER = 512
"""The number of tokens of all texts that are read at once: more take more memory."""


@dataclass(frozen=True)
class Parts:
    """The ONNX names of the number of tokens of each text, the most of a part, and the number of parts."""

    count: str
    most: str
    trips: str

    def bounds(self, onnx: OnnxEmitter, position: str) -> tuple[str, list[str]]:
        """Write where the part that begins at a position ends, and both places as vectors, for a slice."""
        end = onnx.op("Min", onnx.op("Add", position, self.most), self.count)
        return end, [onnx.op("Unsqueeze", bound, [0]) for bound in (position, end)]


def emit_parts(onnx: OnnxEmitter, count: str, rows: str, together: int, least: int, start: Operand = 0) -> Parts:
    """Write the parts of `rows` texts of `count` tokens, from `start` on: `together` tokens of all texts, at least
    `least` of each."""
    most = onnx.op("Max", onnx.op("Div", together, rows), least)
    rest = count if start == 0 else onnx.op("Sub", count, start)
    return Parts(count, most, onnx.op("Div", onnx.op("Sub", onnx.op("Add", rest, most), 1), most))
