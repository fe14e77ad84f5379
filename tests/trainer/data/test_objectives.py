"""What objectives make of plain text."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xformc.compiler.spec.sections import Objective
from xformc.format.tokens import END, IGNORE
from xformc.trainer.data.objectives import Noise, corrupt

NOISE = Noise(4, range(4, 12), range(12, 1000))
TEXTS = st.lists(st.integers(12, 999), min_size=1, max_size=60)


def make(text: str, ids: list[int], seed: int = 0) -> Any:
    return corrupt(Objective.model_validate({text: {}}), ids, NOISE, np.random.default_rng(seed))


@given(TEXTS, st.integers(0, 100))
def test_masked_tokens_are_those_with_a_label(ids: list[int], seed: int) -> None:
    example = make("masked", ids, seed)
    assert len(example.given) == len(example.wanted) == len(ids) + 1 and example.given[-1] == END
    chosen = [index for index, label in enumerate(example.wanted) if label != IGNORE]
    assert len(chosen) == max(1, round(0.15 * len(ids)))
    assert all(example.wanted[index] == ids[index] for index in chosen)
    assert all(example.given[index] == ids[index] for index in range(len(ids)) if index not in chosen)


def test_masked_tokens_are_80_10_10() -> None:
    ids = list(range(12, 912))
    kinds: Counter[str] = Counter()
    for seed in range(40):
        example = make("masked", ids, seed)
        for index, label in enumerate(example.wanted):
            if label != IGNORE:
                found = example.given[index]
                kinds["mask" if found == 4 else "same" if found == label else "other"] += 1
    total = sum(kinds.values())
    shares = [kinds[kind] / total for kind in ("mask", "other", "same")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@given(TEXTS, st.integers(0, 100))
def test_spans_and_the_rest_are_the_whole_text(ids: list[int], seed: int) -> None:
    example = make("spans", ids, seed)
    spans: dict[int, list[int]] = {}
    for token in example.wanted:
        spans[token] = [] if token < 12 else spans[next(reversed(spans))]
        if token >= 12:
            spans.pop(token)
            spans[next(reversed(spans))].append(token)
    whole = [one for token in example.given for one in (spans[token] if token < 12 else [token])]
    assert whole == ids
    assert list(spans) == sorted(spans) and len(spans) == sum(token < 12 for token in example.given) >= 1


@given(TEXTS, st.integers(0, 100))
def test_denoising_writes_the_whole_text(ids: list[int], seed: int) -> None:
    example = make("denoise", ids, seed)
    assert example.wanted == ids
    kept = [token for token in example.given if token != 4]
    assert len(kept) == len(ids) - max(1, round(0.3 * len(ids)))
    rest = iter(ids)
    assert all(token in rest for token in kept)


@given(TEXTS, st.integers(0, 100))
def test_a_prefix_and_the_rest_are_the_whole_text(ids: list[int], seed: int) -> None:
    example = make("prefix", ids, seed)
    if len(ids) == 1:
        assert example is None
    else:
        assert example.given + example.wanted == ids and example.given and example.wanted


@given(st.integers(1, 300), st.integers(0, 50))
def test_hidden_tokens_are_the_rate(length: int, seed: int) -> None:
    example = make("spans", list(range(12, 12 + length)), seed)
    hidden = sum(token >= 12 for token in example.wanted)
    assert hidden == max(1, round(0.15 * length))
    assert len(example.wanted) - hidden == max(1, min(round(hidden / 3), len(NOISE.sentinels)))
