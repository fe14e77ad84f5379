"""The same search with the kernels of docs/kernels.md: two nodes a step beside the decoder's own, no cache moved."""

from dataclasses import replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Value
from xformc.compiler.graph.rules import OnnxEmitter, Operand, Turn
from xformc.compiler.ops.native import DOMAIN, emit_project_candidates
from xformc.compiler.passes.step import Decoder, Resident
from xformc.compiler.search.beam import BeamSearch, Live, SearchInputs

_ANCESTORS = Type("int64", (Axis("batch"), Axis("beam"), Axis("past")))


class KernelSearch(BeamSearch):
    """Beam search by the operators Candidates and Advance, over caches that are written in place.

    Where logits are a projection, ProjectCandidates or ScreenCandidates makes them, too. What a hypothesis carries of
    its past is which beam it was in at each position, and the states that are not caches.
    """

    def __init__(
        self, onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None, vocabulary: Node | None
    ) -> None:
        """As for BeamSearch, of a lowered decoder and what `split_vocabulary` took from it."""
        self.vocabulary = vocabulary
        super().__init__(onnx, decoder, inputs, longest)

    def _state_types(self) -> list[Type]:
        return [_ANCESTORS, *super()._state_types()]

    def _initial_states(self, onnx: OnnxEmitter, batch: str) -> list[str]:
        states = super()._initial_states(onnx, batch)
        nothing = onnx.op("Expand", 0, onnx.op("Concat", batch, self.width, [0], axis=0))
        resident = self.decoder.resident
        if resident is not None:
            capacity = onnx.op("Unsqueeze", self.longest_limit, [0])
            self.caches = _emit_caches(onnx, resident.caches, batch, capacity, self.width)
        return [nothing, *states]

    def _step(self, onnx: OnnxEmitter, position: str, done: str, live: Live) -> Turn:
        ancestors, *rows = live.rows
        newest = onnx.op("Slice", live.tokens, [-1], [2**31], [2])
        resident, extra = self.decoder.resident, dict[str, str]()
        if resident is not None:
            extra = {value.name: name for value, name in zip(resident.caches, self.caches, strict=True)}
            extra[resident.slots.name] = self.sentences
            if resident.ancestors is not None:
                extra[resident.ancestors.name] = ancestors
        result, states = self._decode(onnx, newest, position, replace(live, rows=rows), extra)
        if self.vocabulary is None:
            offered = onnx.ops("Candidates", 3, result, live.scores, self.width, domain=DOMAIN)
        else:
            offered = emit_project_candidates(onnx, self.vocabulary, result, live.scores, self.width)
        penalty, pool = self.inputs.length_penalty, (live.pool_tokens, live.pool_lengths, live.pool_scores)
        sentence = (position, done, live.limit)
        results = onnx.ops(
            "Advance",
            10,
            *(self.width, self.inputs.end_token, penalty, *sentence, *offered, live.tokens, ancestors),
            *(*pool, live.found),
            domain=DOMAIN,
        )
        go_on, ancestors = results[0], results[-1]
        if states:
            parents = onnx.op("Squeeze", onnx.op("Slice", ancestors, [-1], [2**31], [2]), [2])
            rows = self.rows_of(onnx, parents)
            states = [self.reorder(onnx, name, rows) for name in states]
        return go_on, [*results[1:-1], ancestors, *states], []


def emit_resident(onnx: OnnxEmitter, resident: Resident | None, batch: str, capacity: Operand) -> dict[str, str]:
    """Write what the kernels of a step without a beam keep in place, and name it by the step's inputs.

    `batch` and `capacity`, the most positions, are vectors of one number.
    """
    if resident is None:
        return {}
    names = zip(resident.caches, _emit_caches(onnx, resident.caches, batch, capacity, [1]), strict=True)
    found = {value.name: name for value, name in names}
    return {**found, resident.slots.name: onnx.op("Range", 0, onnx.op("Squeeze", batch), 1)}


def _emit_caches(
    onnx: OnnxEmitter, caches: tuple[Value, ...], slots: Operand, capacity: Operand, beam: Operand
) -> list[str]:
    """Write the buffers of a step's caches, for so many slots, positions and hypotheses (vectors of one number)."""
    return [
        onnx.op(
            "CacheNarrow" if value.type.dtype == "float16" else "Cache",
            onnx.op("Concat", slots, capacity, beam, [value.type.axes[-1].size or 1], axis=0),
            domain=DOMAIN,
            label=value.name,
        )
        for value in caches
    ]
