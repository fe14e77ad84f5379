"""Banned and penalised tokens: the engine finds what the reference search finds, and leaves prefixes as they are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiler.conftest import random_sources
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.certify.reference_search import search
from xformc.compiler.certify.subject import Subject
from xformc.compiler.passes import lower as kernels
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import SearchOptions
from xformc.format.targets import Target
from xformc.runtime.each import own_values
from xformc.runtime.rows import pad

pytestmark = pytest.mark.processor

OPTIONS = SearchOptions(3, 3, 0.6, 0.0, 9, 0, "gnmt", "first", 1.0, (), 0, 1.0, 0.0, 0.0)
EDITS: dict[str, dict[str, Any]] = {
    "suppressed": {"suppress_tokens": (31, 33, 7, 12)},
    "unigrams": {"no_repeat_ngram_size": 1},
    "trigrams": {"no_repeat_ngram_size": 3},
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 0.8, "frequency_penalty": 0.3},
    "all": {"suppress_tokens": (31,), "no_repeat_ngram_size": 2, "repetition_penalty": 0.8, "presence_penalty": 0.5},
    "few are left": {"suppress_tokens": tuple(range(4, 32)), "no_repeat_ngram_size": 1},
    "in a narrowing beam": {"no_repeat_ngram_size": 1, "stop_rule": "shrink"},
}


@pytest.fixture(params=["portable", "native", "screened"])
def subject(
    make_subject: Callable[..., Subject], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Subject:
    """One with a vocabulary of 40 tokens; `screened` treats it as a large one."""
    target: Target = "portable" if request.param == "portable" else "native"
    if request.param == "screened":
        monkeypatch.setattr(kernels, "LARGE_VOCABULARY", 1)
    made = make_subject(3, target=target)
    initializers = made.initializers()
    save_models(emit_engine(made.program, initializers), initializers, made.engine)
    return made


def test_edited_searches_find_what_the_reference_finds(subject: Subject) -> None:
    sources = random_sources(5, 4, 9)
    free = subject.search({"source": pad(sources)}, OPTIONS)
    for name, edits in EDITS.items():
        options, changed = replace(OPTIONS, **edits), 0
        result = subject.search({"source": pad(sources)}, options)
        for row, source in enumerate(sources):
            found = search(subject.scorer({"source": source}), len(source), options)
            if found.margin < 1e-5:
                continue
            texts = [result.text(row, rank) for rank in range(3) if np.isfinite(result.scores[row, rank])]
            assert texts == [one.tokens for one in found.hypotheses], name
            scores = [one.score for one in found.hypotheses]
            assert result.scores[row, : len(texts)] == pytest.approx(scores, abs=1e-4)
            changed += texts != free.texts()[row]
        assert changed > 1, name


def test_a_prefix_may_have_banned_tokens(subject: Subject) -> None:
    (source,) = random_sources(6, 1, 9)
    given = np.array([[9, 9, 9, 31]], np.int64)
    options = replace(OPTIONS, **EDITS["all"], beam_size=2, n_best=2)
    result = subject.search_rows([{"source": source, PREFIX: given[0]}], options)
    found = search(subject.scorer({"source": source}), len(source), options, prefix=given[0].tolist())
    assert result.text(0, 0)[:4] == (9, 9, 9, 31)
    assert [result.text(0, rank) for rank in range(2)] == [one.tokens for one in found.hypotheses]
    assert result.scores[0] == pytest.approx([one.score for one in found.hypotheses], abs=1e-4)


def test_sentences_of_a_batch_have_their_own_edits(subject: Subject) -> None:
    """To the bit with native."""
    sources = random_sources(8, len(EDITS), 9)
    options = [replace(OPTIONS, **edits) for edits in EDITS.values()]
    rows = [{"source": source, **own_values(one)} for source, one in zip(sources, options, strict=True)]
    together = subject.search_rows(rows, OPTIONS)
    for row, (source, one) in enumerate(zip(sources, options, strict=True)):
        alone = subject.search_rows([{"source": source}], one)
        assert [together.text(row, rank) for rank in range(3)] == [alone.text(0, rank) for rank in range(3)]
        if subject.program.target == "native":
            assert np.array_equal(together.scores[row], alone.scores[0])
        assert together.scores[row] == pytest.approx(alone.scores[0], abs=1e-5)
