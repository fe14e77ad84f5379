"""Samples of translations: the certificate compares each draw with its definition, these tests the rest."""

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, mistake
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.errors import UserError
from xformc.runtime import Engine, load


@pytest.fixture(scope="module")
def folder(small_engines: SmallEngines) -> Path:
    return small_engines("search", "native")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


def tokens(found: Any) -> list[list[tuple[int, ...]]]:
    return [[one.tokens for one in several] for several in found]


@pytest.mark.processor
def test_samples_are_those_of_each_text_alone_with_its_options(engine: Engine) -> None:
    options: dict[str, Any] = {
        "temperature": [0.0, 1.0, 0.7, 2.0, None, 0.1],
        "max_length_factor": [0.0, 1.0, 0.5, 2.0, None, 0.0],
        "max_length_offset": [4, 9, 6, 1, None, 12],
        "suppress_tokens": [[], [5, 9, 11], None, [7], [40], [3]],
    }
    together = engine.translate(TEXTS, samples=3, seed=9, top_k=20, **options)
    assert {len(several) for several in together} == {3}
    for row, text in enumerate(TEXTS):
        own = {name: values[row] for name, values in options.items()}
        assert engine.translate([text], samples=3, seed=9 + 3 * row, top_k=20, **own)[0] == together[row]
    assert len({one.tokens for one in together[0]}) == 1, "temperature 0 draws the most likely tokens"
    assert len({one.tokens for one in together[1]}) == 3
    assert max(len(one.tokens) for one in together[0]) <= 4


@pytest.mark.processor
def test_a_sample_begins_with_its_prefix_and_scores_what_follows(engine: Engine) -> None:
    limit = 12
    options: Any = {"max_length_factor": 0.0, "max_length_offset": limit}
    found = engine.translate(TEXTS[:2], samples=2, prefixes=[[28, 7], []], token_scores=True, **options)
    for several, begun in zip(found, ((28, 7), ()), strict=True):
        for one in several:
            assert one.tokens[: len(begun)] == begun
            assert len(one.tokens) <= limit
            assert one.score == pytest.approx(sum(one.token_scores[len(begun) :]), abs=1e-4)
    assert tokens(engine.translate(TEXTS[:2], samples=1, temperature=0.0, **options)) == tokens(
        engine.translate(TEXTS[:2], beam_size=1, n_best=1, **options)
    ), "without randomness they are those of greedy search"


def test_samples_refuse_what_only_a_search_has(engine: Engine) -> None:
    for options, message in (
        ({"samples": 2, "beam_size": 4}, "beam_size: no effect on samples"),
        ({"samples": 0}, "samples must be an integer from 1 to 10000, not 0"),
        ({"samples": 2, "temperature": -1.0}, "temperature must be a number from 0 to 100, not -1.0"),
        ({"temperature": 0.5}, "temperature: no effect on a search"),
        ({"seed": 5}, "seed: no effect on a search"),
    ):
        given: Any = options
        with pytest.raises(UserError) as caught:
            engine.translate(["one"], **given)
        assert str(caught.value).startswith(message)


@pytest.mark.processor
def test_the_command_prints_all_samples_or_the_one_that_is_most_like_the_others(
    folder: Path, engine: Engine, xformc: CommandLine
) -> None:
    every = xformc("translate", folder, "--samples", "3", "--seed", "4", stdin="two dogs\none\n")
    assert every.code == 0, every.err
    drawn = [line.split(" ||| ")[1] for line in every.out.splitlines()]
    texts = [
        " ".join(one.text.split())
        for several in engine.translate(["two dogs", "one"], samples=3, seed=4)
        for one in several
    ]
    assert drawn == texts
    chosen = xformc("translate", folder, "--samples", "3", "--seed", "4", "--mbr", "chrf", stdin="two dogs\none\n")
    first, second = chosen.out.splitlines()
    assert first in drawn[:3]
    assert second in drawn[3:]
    wrong = mistake(xformc("translate", folder, "--samples", "1", "--mbr", "chrf", stdin="one\n"))
    assert wrong.startswith("--mbr chooses among the samples, there is 1")
