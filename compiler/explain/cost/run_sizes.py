"""Run-time sizes of axes for counting and measuring costs, and the decoder of a spec, if any."""

from collections.abc import Mapping

from xformc.compiler.graph.graph import Graph, all_nodes
from xformc.compiler.graph.rules import RuleError, made_lengths
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.positions import longest
from xformc.compiler.passes.step import Decoder
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import sequences_of
from xformc.errors import UserError
from xformc.format.targets import Target

LENGTH = 64
"""The default number of positions of every input."""

Sizes = Mapping[str, int]


def checked_length(spec: Spec, graph: Graph, length: int | None) -> int | None:
    """The length; for None, LENGTH or the model's maximum if that is smaller. None if no input has positions.

    Raises: UserError for a length that the model does not support.
    """
    if not sequences_of(spec.inputs):
        if length is not None:
            raise UserError(f"the inputs of {spec.name} have no length: the spec fixes their sizes")
        return None
    limit = min(_limits(graph), default=LENGTH if length is None else length)
    if length is not None and length > limit:
        raise UserError(f"the model has {limit:,} positions, not {length:,}", hint=f"use at most {limit:,}")
    return min(limit, length or LENGTH)


def _limits(graph: Graph) -> list[int]:
    """The numbers of input positions that the graph has encodings for."""
    return [limit for name in {value.name for value in graph.inputs} if (limit := longest(graph, name)) is not None]


def find_program(spec: Spec, target: Target = "portable") -> tuple[Program | None, str | None]:
    """The program of an engine that decodes, or the reason why there is none; neither for tasks that predict labels."""
    try:
        program = compile_engine(spec, target)
        return (None if program.steps is None else program), None
    except RuleError as error:
        return None, f"{error.place}: {error.message}" if error.place else error.message


def run_sizes(graph: Graph, length: int | None) -> dict[str, int]:
    """The run-time sizes of all axes for one example with `length` positions (None if no input has positions)."""
    values = (*graph.inputs, *(value for node in all_nodes(graph.nodes) for value in node.outputs))
    names = {axis.name for value in values for axis in value.type.axes if axis.size is None}
    sizes = {name: 1 if name == "batch" else length or 1 for name in names}
    for name, made in made_lengths(all_nodes(graph.nodes)):
        sizes[name] = made.at(sizes)
    return sizes


def step_sizes(decoder: Decoder, length: int | None) -> dict[str, int]:
    """The run-time sizes of the step that decodes token `length`; its caches hold the tokens before it."""
    length = length or 1
    sizes = run_sizes(decoder.step, length) | run_sizes(decoder.prepare, length)
    for node in decoder.step.nodes:
        if isinstance(node.op, Append):
            seen = min(length, node.op.window or length)
            sizes |= {node.op.past: min(length - 1, seen), node.op.seen: seen}
    return sizes
