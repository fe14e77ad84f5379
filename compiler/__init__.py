"""The compiler: turns a spec into a graph, and the graph into a PyTorch module and an ONNX engine."""

from xformc.compiler.pipeline import compile_spec

__all__ = ["compile_spec"]
