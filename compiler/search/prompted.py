"""The beginning of a beam search: after a source, or after the prompts of a language model.

Prompts are read without a beam, many tokens at a time, up to the length of the shortest one; then its states become
those of a beam. The tokens of longer prompts are forced, one in each step, as those of a prefix are.
"""

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder, Resident
from xformc.compiler.search.batch_loop import Begun, Read, SearchInputs, begin, emit_options
from xformc.compiler.search.candidates import BeamOptions, emit_limit
from xformc.compiler.search.decoder_step import emit_caches, emit_positions, emit_prepare, emit_states
from xformc.compiler.search.groups import emit_groups
from xformc.compiler.search.sample import KEPT, emit_prompts, read_together

_FLOAT = 1


def begin_search(
    onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None, reader: Decoder | None
) -> Begun:
    """Write the part before the loops. `reader` is the decoder without a beam, for a search after prompts."""
    if reader is None:
        return begin(onnx, decoder, inputs, longest)
    options, prompts = emit_options(onnx, inputs, decoder.written), emit_prompts(onnx, inputs.prompt, decoder.written)
    given, begun = onnx.op("Sub", prompts.lengths, 1), len(decoder.written.begun)
    count = onnx.op("Cast", onnx.op("Sub", prompts.lengths, begun), to=_FLOAT)
    new = emit_limit(onnx, count, inputs.max_length_factor, inputs.max_length_offset, None)
    limit = onnx.op("Add", given, new)
    limit = limit if longest is None else onnx.op("Min", limit, longest)
    furthest = onnx.op("ReduceMax", limit, keepdims=0)
    prepared = emit_prepare(onnx, decoder, emit_positions(onnx, decoder, furthest))
    batch = onnx.op("Shape", inputs.prompt, start=0, end=1)
    caches = beam_caches(onnx, decoder.resident, options, batch, furthest)
    known = {**prepared, **caches}
    if reader.resident is not None:
        known[reader.resident.slots.name] = onnx.op("Range", 0, onnx.op("Squeeze", batch), 1)
    states = emit_states(onnx, reader, {"batch": batch}, known)
    shortest = onnx.op("ReduceMin", given, keepdims=0)
    start, states = read_together(onnx, reader, known, states, (prompts.tokens, shortest), KEPT)
    behind = onnx.op("Unsqueeze", onnx.op("Add", start, 1), [0])
    tokens, rest = (onnx.op("Slice", prompts.tokens, *bounds, [1]) for bounds in (([0], behind), ([1], [2**31])))
    return Begun(
        options,
        limit,
        onnx.op("Add", given, inputs.min_length),
        furthest,
        rest,
        prepared,
        batch,
        emit_groups(onnx, inputs.beam_groups, options.width, inputs.diversity_penalty),
        read=Read(start, given, tokens, states, caches),
        given=given,
    )


def beam_caches(
    onnx: OnnxEmitter, resident: Resident | None, options: BeamOptions, batch: str, longest: str
) -> dict[str, str]:
    """Write the caches of a beam, for at most `longest` positions, a scalar; none without kernels."""
    if resident is None:
        return {}
    return emit_caches(onnx, resident, batch, onnx.op("Unsqueeze", longest, [0]), options.width)
