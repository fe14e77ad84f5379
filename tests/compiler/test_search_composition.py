"""The parts of the search compose into another search: here one that never writes some token."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.compiler.conftest import random_sources
from tests.compiler.test_search import tokens_of, write_engine
from xformc.compiler.backends.onnx import models
from xformc.compiler.certify.reference_search import Scorer, search
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.batch_loop import (
    Decoding,
    Live,
    SearchInputs,
    Written,
    begin,
    best,
    decode_batch,
    heads_of,
    newest,
    options_by_sentence,
    options_of,
)
from xformc.compiler.search.beam import advance
from xformc.compiler.search.candidates import Texts, forced_token
from xformc.compiler.search.carried import NEVER
from xformc.compiler.search.decoder_step import emit_states, emit_step, state_types
from xformc.compiler.search.groups import Step
from xformc.format.manifest import SearchOptions
from xformc.format.tokens import END
from xformc.runtime.rows import pad

SUPPRESSED, VOCABULARY = 7, 40


def emit_search_without(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None) -> Written:
    begun = begin(onnx, decoder, inputs, longest)
    states = emit_states(onnx, decoder, {"batch": begun.batch, "beam": begun.options.width}, begun.prepared)
    forbidden = onnx.op("Equal", onnx.op("Range", 0, VOCABULARY, 1), SUPPRESSED)

    def step(scope: OnnxEmitter, live: Live, now: Decoding) -> tuple[str, Decoding]:
        known = {**begun.prepared, **live.constant, **now.state}
        logits, state = emit_step(scope, decoder, newest(scope, now.beam), now.position, known)
        others = scope.op("Where", forbidden, NEVER, logits)
        texts = Texts(now.beam.tokens, live.prefix, forced_token(scope, live.prefix, now.position), live.limit)
        given = Step(others, now.beam.scores, texts, lambda _, scores: scores)
        options = options_of(begun.options, live.option)
        return advance(scope, (options, begun.groups), live, now, given, state)

    option = options_by_sentence(onnx, begun)
    found = decode_batch(onnx, decoder, begun, states, state_types(decoder), step, option=option)
    return best(onnx, found, inputs.n_best), heads_of(decoder, begun)


def test_a_search_without_a_token_finds_what_the_reference_finds(
    make_subject: Callable[..., Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_engine(make_subject(1))
    sources, options = random_sources(1, 8, 9), SearchOptions(4, 4, 0.6, 1.0, 6)
    assert (plain.search({"source": pad(sources)}, options).tokens == SUPPRESSED).any()

    monkeypatch.setattr(models, "emit_beam_search", emit_search_without)
    subject = write_engine(make_subject(1))

    def scorer(source: NDArray[np.int64]) -> Scorer:
        given = subject.scorer({"source": source})

        def score(target: NDArray[np.int64]) -> NDArray[np.float32]:
            logits = given(target).copy()
            logits[..., SUPPRESSED] = NEVER
            return logits

        return score

    result, ended = subject.search({"source": pad(sources)}, options), 0
    assert (result.tokens != SUPPRESSED).all()
    for row, source in enumerate(sources):
        found = search(scorer(source), len(source), options)
        if found.margin < 1e-5:
            continue
        for rank, hypothesis in enumerate(found.hypotheses):
            assert tokens_of(result, row, rank) == hypothesis.tokens
            assert result.scores[row, rank] == pytest.approx(hypothesis.score, abs=1e-4)
            ended += hypothesis.tokens[-1] == END
    assert ended > 0, "no hypothesis ended by itself, so the test shows little"
