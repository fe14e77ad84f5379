"""The passes in their order, from a spec to the decoder that a build writes and a certificate compares with."""

from collections.abc import Callable
from dataclasses import dataclass

from xformc.compiler import compile_spec
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.positions import Positions
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import Decoder, derive_step, with_beam
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.runtime.options import SearchOptions


@dataclass(frozen=True)
class Side:
    """What sentences a model can take on one side: ids below `vocabulary`, at most `longest` of them if not None."""

    vocabulary: int
    longest: int | None


@dataclass(frozen=True)
class Compiled:
    """What the passes make of a spec; `options` are its decoding defaults."""

    graph: Graph
    decoder: Decoder
    options: SearchOptions
    source: Side
    target: Side


def compile_decoder(spec: Spec) -> Compiled:
    """Run the passes. Raises: SpecError, or RuleError at what cannot be decoded step by step."""
    graph = inference(compile_spec(spec))
    decode = spec.decode
    options = SearchOptions(
        decode.beam_width, decode.n_best, decode.length_penalty, decode.max_length.factor, decode.max_length.offset
    )
    sides = (Side(spec.inputs[name].vocabulary, _limit(graph, name)) for name in ("source", "target"))
    return Compiled(graph, derive_step(graph), options, *sides)


STAGES: dict[str, Callable[[Graph], tuple[Graph, ...]]] = {
    "elaborate": lambda graph: (graph,),
    "inference": lambda graph: (inference(graph),),
    "step": lambda graph: _graphs(derive_step(inference(graph))),
    "beam": lambda graph: _graphs(with_beam(derive_step(inference(graph)))),
}
"""What `xformc build --stop-after` can print, in the order of the build."""


def print_stage(spec: Spec, stage: str) -> str:
    """The text of the graph, or of the two graphs of the decoder, after this pass. Raises: UserError if unknown."""
    if stage not in STAGES:
        raise UserError(f"no pass is called '{stage}'", hint=f"the passes are {', '.join(STAGES)}")
    return "\n".join(text.format(verify(graph)) for graph in STAGES[stage](compile_spec(spec)))


def _graphs(decoder: Decoder) -> tuple[Graph, Graph]:
    return decoder.prepare, decoder.step


def _limit(graph: Graph, axis: str) -> int | None:
    """The most positions that the graph has encodings for, or None where there is no bound."""
    limits = [
        node.op.limit
        for node in graph.nodes
        if isinstance(node.op, Positions) and node.op.axis == axis and node.op.limit is not None
    ]
    return min(limits, default=None)
