"""The search in the engine agrees with the plain reference search, token by token and score by score."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.conftest import random_sources
from tests.programs import with_inputs
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.certify.reference_search import search
from xformc.compiler.certify.subject import Ids, Subject
from xformc.compiler.passes import lower as kernels
from xformc.format.manifest import SearchOptions
from xformc.format.names import MODEL
from xformc.format.search_options import LENGTH_PENALTIES, STOP_RULES
from xformc.format.targets import Target
from xformc.format.tokens import END
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.session import open_model

pytestmark = pytest.mark.processor

MakeSubject = Callable[..., Subject]


def find(subject: Subject, source: Ids, options: SearchOptions, end: int = END) -> SearchResult:
    return subject.search({"source": source}, options, (end,))


def write_engine(subject: Subject, longest: int | None = None) -> Subject:
    target, initializers = replace(subject.program.inputs["target"], longest=longest), subject.initializers()
    program = with_inputs(subject.program, {"target": target})
    save_models(emit_engine(program, initializers), initializers, subject.engine)
    return subject


def tokens_of(result: SearchResult, row: int, rank: int) -> tuple[int, ...]:
    return tuple(int(token) for token in result.tokens[row, rank, : result.lengths[row, rank]])


def random_options(seed: int) -> SearchOptions:
    random = np.random.default_rng(seed)
    width = int(random.integers(1, 7))
    return SearchOptions(width, width, float(random.uniform(0, 1.5)), float(random.uniform(0, 2)), 6)


RULES = [(kind, rule) for kind in LENGTH_PENALTIES for rule in STOP_RULES]


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize(("kind", "rule"), RULES)
def test_length_penalties_and_stop_rules_are_those_of_the_reference(
    make_subject: MakeSubject, kind: str, rule: str, target: Target
) -> None:
    subject, seed = write_engine(make_subject(3, target=target)), len(kind) * len(rule)
    patience = 1.6 if rule == "first" else 1.0
    options = replace(random_options(seed), beam_size=3, n_best=3, max_length_factor=0, max_length_offset=12)
    options = replace(options, length_penalty_kind=kind, stop_rule=rule, patience=patience)
    sources = random_sources(seed, 4, 9)
    result = find(subject, pad(sources), options)
    for row, source in enumerate(sources):
        found = search(subject.scorer({"source": source}), len(source), options)
        if found.margin >= 1e-5:
            assert [tokens_of(result, row, rank) for rank in range(3)] == [one.tokens for one in found.hypotheses]
            assert result.scores[row] == pytest.approx([one.score for one in found.hypotheses], abs=1e-4)


@pytest.fixture(params=[1, kernels.LARGE_VOCABULARY], ids=["screened", "plain"])
def native_subject(
    make_subject: MakeSubject, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Subject:
    """Of a small vocabulary, which may be screened as if it were large."""
    monkeypatch.setattr(kernels, "LARGE_VOCABULARY", request.param)
    return write_engine(make_subject(3, target="native"))


@pytest.mark.parametrize("target", ["portable", "cpu", "native"])
@pytest.mark.parametrize("seed", range(6))
def test_search_finds_what_the_reference_finds(make_subject: MakeSubject, seed: int, target: Target) -> None:
    subject = write_engine(make_subject(seed, target=target))
    options = random_options(seed)
    sources = random_sources(seed, 8, 9)
    result = find(subject, pad(sources), options)
    ended = 0
    for row, source in enumerate(sources):
        found = search(subject.scorer({"source": source}), len(source), options)
        if found.margin < 1e-5:
            continue
        assert len(found.hypotheses) == options.beam_size
        for rank, hypothesis in enumerate(found.hypotheses):
            assert tokens_of(result, row, rank) == hypothesis.tokens
            assert result.scores[row, rank] == pytest.approx(hypothesis.score, abs=1e-4)
            ended += hypothesis.tokens[-1] == 3
    assert ended > 0, "no hypothesis ended by itself, so the test shows little"


@pytest.mark.parametrize("target", ["portable", "native"])
def test_no_text_is_shorter_than_its_least_length(make_subject: MakeSubject, target: Target) -> None:
    changed = 0
    for seed in range(3):
        subject, options = write_engine(make_subject(seed, target=target)), random_options(seed)
        sources = random_sources(seed, 8, 9)
        free, result = (find(subject, pad(sources), replace(options, min_length=least)) for least in (0, 5))
        assert result.lengths[:, 0].min() >= min(5, free.lengths.max())
        for row, source in enumerate(sources):
            found = search(subject.scorer({"source": source}), len(source), replace(options, min_length=5))
            if found.margin >= 1e-5:
                assert [result.text(row, rank) for rank in range(options.beam_size)] == [
                    hypothesis.tokens for hypothesis in found.hypotheses
                ]
                changed += result.text(row, 0) != free.text(row, 0)
    assert changed > 0, "no text would have been shorter, so the test shows little"


def test_search_gives_the_n_best_of_the_beam(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(1))
    source = pad(random_sources(1, 3, 6))
    options = SearchOptions(4, 4, 0.6, 1.0, 5)
    all_four, best_two = find(subject, source, options), find(subject, source, replace(options, n_best=2))
    assert best_two.tokens.shape[1] == 2
    np.testing.assert_array_equal(best_two.scores, all_four.scores[:, :2])


def test_search_scores_fall_from_best_to_worst(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(2))
    result = find(subject, pad(random_sources(2, 5, 6)), SearchOptions(5, 5, 1.0, 1.0, 5))
    assert (np.diff(result.scores, axis=1) <= 0).all()


def test_search_keeps_to_the_limit_of_each_sentence(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(3))
    sources = random_sources(3, 6, 12)
    result = find(subject, pad(sources), SearchOptions(3, 3, 0.0, 0.5, 1))
    for row, source in enumerate(sources):
        assert result.lengths[row].max() <= len(source) // 2 + 1


def test_search_pads_with_zero_after_a_hypothesis(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(0))
    result = find(subject, pad(random_sources(0, 6, 8)), SearchOptions(3, 3, 0.6, 1.0, 4))
    after = np.arange(result.tokens.shape[2]) >= result.lengths[..., None]
    assert (result.tokens[after] == 0).all()
    assert result.tokens.shape[2] == result.lengths.max()


@pytest.mark.parametrize("seed", range(4))
def test_search_does_not_depend_on_the_neighbours(make_subject: MakeSubject, seed: int) -> None:
    subject = write_engine(make_subject(seed))
    sources = random_sources(seed, 12, 10)
    options = SearchOptions(4, 4, 0.6, 1.0, 6)
    together = find(subject, pad(sources), options)
    for row, source in enumerate(sources):
        alone = find(subject, source[None], options)
        for rank in range(4):
            assert tokens_of(together, row, rank) == tokens_of(alone, 0, rank)
        np.testing.assert_allclose(together.scores[row], alone.scores[0], atol=1e-4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_sentence_is_the_same_to_the_bit_in_every_batch(native_subject: Subject, data: st.DataObject) -> None:
    """With kernels: whoever its neighbours are, wherever it stands, however long the padding is."""
    options = random_options(data.draw(st.integers(0, 50), label="options"))
    sources = random_sources(data.draw(st.integers(0, 10**6), label="sources"), 10, 14)
    rows = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=24), label="rows")
    padding = data.draw(st.integers(0, 5), label="padding")
    batch = np.pad(pad([sources[row] for row in rows]), ((0, 0), (0, padding)))
    together = find(native_subject, batch, options)
    place = data.draw(st.integers(0, len(rows) - 1), label="place")
    alone = find(native_subject, sources[rows[place]][None], options)
    for rank in range(options.n_best):
        assert tokens_of(together, place, rank) == tokens_of(alone, 0, rank)
    assert together.scores[place].tobytes() == alone.scores[0].tobytes()


def test_search_stops_at_what_the_model_can_decode(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(4), longest=3)
    result = find(subject, pad(random_sources(4, 3, 8)), SearchOptions(2, 2, 0.6, 1.0, 50))
    assert result.lengths.max() <= 3


def test_engine_has_the_defaults_of_the_spec(make_subject: MakeSubject) -> None:
    subject = write_engine(make_subject(5))
    source = pad(random_sources(5, 2, 5))
    session = open_model(subject.engine / MODEL)
    tokens, _, scores = session.run(None, {"source": source})
    explicit = find(subject, source, SearchOptions(4, 1, 0.6, 1.0, 50))
    np.testing.assert_array_equal(tokens, explicit.tokens)
    np.testing.assert_array_equal(scores, explicit.scores)
