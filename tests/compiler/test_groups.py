"""Groups of diverse beams: what the reference search finds, what plain code finds, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.compiler.conftest import random_sources
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.certify.reference_search import Scorer, search
from xformc.compiler.certify.subject import Subject
from xformc.compiler.passes import lower as kernels
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import SearchOptions
from xformc.format.targets import Target
from xformc.format.tokens import BEGIN, END
from xformc.runtime.each import own_values
from xformc.runtime.rows import pad

pytestmark = pytest.mark.processor

OPTIONS = SearchOptions(6, 6, 0.6, 0.0, 9, 0, "gnmt", "first", 1.0, (), 0, 1.0, 0.0, 0.0, 0.0, 1, 0.0)
GROUPS: dict[str, dict[str, Any]] = {
    "pairs": {"beam_groups": 3, "diversity_penalty": 0.5},
    "single hypotheses": {"beam_groups": 6, "diversity_penalty": 1.0, "length_penalty_kind": "average"},
    "best": {"beam_groups": 2, "diversity_penalty": 0.3, "stop_rule": "best", "min_length": 3},
    "shrink": {"beam_groups": 2, "diversity_penalty": 2.0, "stop_rule": "shrink"},
    "with edits": {"beam_groups": 2, "diversity_penalty": 0.7, "suppress_tokens": (31,), "repetition_penalty": 1.3},
    "no penalty": {"beam_groups": 3, "stop_rule": "complete"},
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
    with torch.no_grad():  # an end token like two frequent tokens, so that hypotheses end by themselves
        for name, parameter in made.module.named_parameters():
            if name.endswith("embedding.weight"):
                parameter[END] = 0.6 * (parameter[31] + parameter[33])
    initializers = made.initializers()
    save_models(emit_engine(made.program, initializers), initializers, made.engine)
    return made


def test_groups_find_what_the_reference_finds(subject: Subject) -> None:
    sources, prefix = random_sources(5, 4, 9), np.array([9, 8], np.int64)
    free, ended, compared = subject.search({"source": pad(sources)}, OPTIONS), 0, 0
    for name, changes in GROUPS.items():
        options, changed = replace(OPTIONS, **changes), 0
        rows = [{"source": source} for source in sources]
        rows[1][PREFIX] = prefix
        result = subject.search_rows(rows, options)
        for row, source in enumerate(sources):
            begun = prefix.tolist() if row == 1 else []
            found = search(subject.scorer({"source": source}), len(source), options, prefix=begun)
            if found.margin < 1e-5:
                continue
            texts = [result.text(row, rank) for rank in range(6) if np.isfinite(result.scores[row, rank])]
            assert texts == [one.tokens for one in found.hypotheses], name
            scores = [one.score for one in found.hypotheses]
            assert result.scores[row, : len(texts)] == pytest.approx(scores, abs=1e-4)
            ended += sum(text[-1] == END for text in texts)
            compared, changed = compared + 1, changed + (texts != free.texts()[row])
        assert changed > 1, name
    assert ended > 10 and compared > 15, "the test shows little"


def test_groups_of_one_hypothesis_avoid_what_earlier_ones_wrote(subject: Subject) -> None:
    """Greedy searches, each written down without any beam."""
    (source,) = random_sources(7, 1, 9)
    options = replace(OPTIONS, **GROUPS["single hypotheses"], length_penalty=0.0)
    result = subject.search({"source": pad([source])}, options)
    expected = greedy_groups(subject.scorer({"source": source}), 6, 1.0, 9)
    assert {result.text(0, rank) for rank in range(6)} == {text for text, _ in expected}
    assert result.scores[0] == pytest.approx(sorted((score for _, score in expected), reverse=True), abs=1e-4)


def greedy_groups(scorer: Scorer, groups: int, penalty: float, limit: int) -> list[tuple[tuple[int, ...], float]]:
    texts, scores, done = [[BEGIN] for _ in range(groups)], [0.0] * groups, [False] * groups
    best: list[tuple[tuple[int, ...], float]] = [((), -np.inf)] * groups
    for length in range(1, limit + 1):
        written: list[int] = []
        for group in (group for group in range(groups) if not done[group]):
            logits = scorer(np.array([texts[group]]))[0, -1].astype(np.float64)
            values = logits - np.log(np.exp(logits).sum())
            for token in written:
                values[token] -= penalty
            first, second = np.argsort(-values)[:2]
            if first == END or length == limit:
                best[group] = (*map(int, texts[group][1:]), int(first)), scores[group] + float(values[first])
                done[group] = True
            goes_on = int(second if first == END else first)
            written.append(goes_on)
            texts[group], scores[group] = [*texts[group], goes_on], scores[group] + float(values[goes_on])
    return best


def test_one_group_is_the_plain_search_to_the_bit(subject: Subject) -> None:
    sources = random_sources(5, 4, 9)
    plain = subject.search({"source": pad(sources)}, replace(OPTIONS, beam_groups=None, diversity_penalty=None))
    for penalty in (0.0, 3.0):
        one = subject.search({"source": pad(sources)}, replace(OPTIONS, diversity_penalty=penalty))
        assert one.texts() == plain.texts() and np.array_equal(one.scores, plain.scores)


def test_sentences_of_a_batch_have_their_own_penalties(subject: Subject) -> None:
    sources, penalties = random_sources(8, 4, 9), (0.0, 0.4, 1.0, 5.0)
    options = [replace(OPTIONS, beam_groups=3, diversity_penalty=penalty) for penalty in penalties]
    rows = [{"source": source, **own_values(one)} for source, one in zip(sources, options, strict=True)]
    together = subject.search_rows(rows, options[0])
    for row, (source, one) in enumerate(zip(sources, options, strict=True)):
        alone = subject.search_rows([{"source": source}], one)
        assert together.texts()[row] == alone.texts()[0]
        assert together.scores[row] == pytest.approx(alone.scores[0], abs=1e-5)
