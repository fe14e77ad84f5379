"""The check of drafted tokens of texts: sampling goes on as `token_stream` does, for many tokens in one pass.

The step of several tokens reads the newest token and the drafted ones. Then each position draws its token as sampling
does, up to the first that is not the drafted one: its logits are right, as all tokens before it are. Random numbers
depend on the seed and the position alone, so the texts are those of sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Graph, Node, pruned
from xformc.compiler.graph.rules import OnnxEmitter, to_onnx
from xformc.compiler.ops.keys import Append
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.decoder_step import step_inputs
from xformc.compiler.search.draw_token import emit_fed
from xformc.compiler.search.loops import Collected, Names, emit_loop, fields_of, some_open
from xformc.compiler.search.sample import KEPT, SampleInputs, Sampling
from xformc.compiler.search.token_stream import Streamed, emit_resumed, moving_values
from xformc.format.interfaces import AT, NEWEST

DRAFTED_TYPE = Type("int64", (Axis("batch"), Axis("drafted")))


def emit_check(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs, drafted: str) -> Streamed:
    """Write the check of tokens [batch, drafted] that may follow the newest ones.

    Returns: the tokens [steps, batch], at most one more than the drafted ones, and the names of the moving values. All
    texts take as many steps, so the first text that differs from its draft ends them. The inputs have the names of the
    values of a stream. No position may be the last one of the caches.
    """
    assert decoder.extend is not None, "the decoder has no step of several tokens"
    fed = onnx.op("Concat", onnx.op("Unsqueeze", NEWEST, [1]), drafted, axis=1)
    onnx.bind(decoder.extend.inputs[0], fed)  # first: tables of all positions have the same axis
    sampler, now = emit_resumed(onnx, decoder, inputs)
    known, kept = {**sampler.known, **now.state}, _Kept.of(decoder, decoder.extend)
    logits, *found = onnx.graph(kept.graph, step_inputs(decoder, emit_fed(onnx, fed, decoder.written), AT, known))
    expected = onnx.op("Pad", drafted, [0, 0, 0, 1], decoder.written.absent)
    types = fields_of(Sampling, state={})

    def body(scope: OnnxEmitter, iteration: str, now: Sampling) -> tuple[str, Sampling, Collected]:
        here = scope.op("Gather", logits, scope.op("Unsqueeze", iteration, [0]), axis=1)
        after = sampler.write(scope, here, scope.op("Add", iteration, AT), now)
        same = scope.op("Equal", after.text.newest, scope.op("Gather", expected, iteration, axis=1))
        wrong = some_open(scope, scope.op("Or", same, after.text.done))
        go_on = scope.op("And", some_open(scope, after.text.done), scope.op("Not", wrong))
        return go_on, after, [(types["text_newest"], after.text.newest)]

    trips = onnx.op("Squeeze", onnx.op("Shape", fed, start=1), [0])
    last, (tokens,) = emit_loop(onnx, trips, types, replace(now, state={}), body, KEPT)
    steps = onnx.op("Shape", tokens, start=0, end=1)
    state = kept.states(onnx, decoder, found, known, fed, steps)
    position = onnx.op("Add", AT, onnx.op("Squeeze", steps, [0]))
    return tokens, moving_values(position, replace(last, state=state))


@dataclass(frozen=True)
class _Kept:
    """The step of several tokens whose states may be those after fewer of them.

    `graph` is the step, with the new entries of the states that `appends` make as further outputs. Of any other states
    only the ones after all tokens are known; `again` computes these.
    """

    graph: Graph
    appends: dict[str, Node]
    again: Graph | None
    others: dict[str, Type]

    @classmethod
    def of(cls, decoder: Decoder, extend: Graph) -> "_Kept":
        makers, news = extend.producers(), dict(zip(decoder.states, extend.outputs[1:], strict=True))
        made = {state.past.name: makers.get(value.name) for state, value in news.items()}
        appends = {
            name: node
            for name, node in made.items()
            if node is not None and isinstance(node.op, Append) and node.inputs[0].name == name
        }
        others = {state.past.name: value for state, value in news.items() if state.past.name not in appends}
        entries = (node.inputs[1] for node in appends.values())
        again = pruned(replace(extend, outputs=tuple(others.values()))) if others else None
        types = {name: value.type for name, value in others.items()}
        return cls(replace(extend, outputs=(*extend.outputs, *entries)), appends, again, types)

    def states(
        self, onnx: OnnxEmitter, decoder: Decoder, found: Sequence[str], known: Names, fed: str, steps: str
    ) -> dict[str, str]:
        """Write the states after `steps` of the tokens `fed`, given those after all, with the new entries."""
        pasts = [state.past.name for state in decoder.states]
        whole = dict(zip(pasts, found, strict=False))
        short = dict(zip(self.appends, found[len(pasts) :], strict=True))
        for name, node in self.appends.items():
            whole[name] = _append(onnx, node, known[name], short[name], steps)
        if self.again is None:
            return whole
        again, others = self.again, list(self.others)

        def read(scope: OnnxEmitter) -> tuple[str, ...]:
            tokens = scope.op("Slice", fed, [0], steps, [1])
            tokens = emit_fed(scope, tokens, decoder.written)
            return scope.graph(again, step_inputs(decoder, tokens, AT, known))

        every = onnx.op(
            "Equal", onnx.op("Squeeze", steps, [0]), onnx.op("Squeeze", onnx.op("Shape", fed, start=1), [0])
        )
        types: tuple[DType, ...] = tuple(type.dtype for type in self.others.values())
        states = onnx.choose(every, lambda scope: tuple(whole[name] for name in others), read, types)
        return {**whole, **dict(zip(others, states, strict=True))}


def _append(onnx: OnnxEmitter, node: Node, past: str, new: str, steps: str) -> str:
    """Append only the first entries to a state."""
    assert isinstance(node.op, Append)
    axis = node.inputs[1].type.names.index(node.op.new)
    (state,) = to_onnx.of(node.op)(node.op, node, onnx, (past, onnx.op("Slice", new, [0], steps, [axis])))
    return state
