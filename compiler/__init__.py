"""The compiler: one spec becomes a graph, and the graph becomes a PyTorch module and an ONNX engine."""

from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.fuse import fuse_attention
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.share import share
from xformc.compiler.spec import Spec

__all__ = ["compile_spec"]


def compile_spec(spec: Spec, *, arranged: bool = True) -> Graph:
    """The training graph of a spec: its inputs, such as source and target, to its logits.

    Nodes alike are one, attention is fused (`arranged`: see `fuse_attention`), recurrences are thinned, and the graph
    is verified. Raises: SpecError with the places in the spec.
    """
    return verify(hoist(fuse_attention(share(spec.graph()), arranged=arranged)))
