"""The compiler: one spec becomes a graph, and the graph becomes a PyTorch module and an ONNX engine."""

from xformc.compiler.pipeline import compile_spec

__all__ = ["compile_spec"]
