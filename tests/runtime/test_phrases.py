"""Phrases that texts must have: the certificate compares the search with the reference, these tests the rest."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.compiler.certify.reference_phrases import bank, in_turn, next_tokens, occurs
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import Engine, load

TARGETS: tuple[Target, ...] = ("native", "portable")


@pytest.fixture(scope="module")
def engines(small_engines: SmallEngines) -> dict[Target, Engine]:
    return {target: load(small_engines("search", target)) for target in TARGETS}


def lists_of_phrases(count: int) -> list[list[list[int]]]:
    """Lists of 0 to 3 phrases of 1 to 3 tokens, some of which begin alike or are contained in each other."""
    drawn = random.Random(1)
    return [
        [[drawn.randint(4, 12) for _ in range(drawn.randint(1, 3))] for _ in range(drawn.randint(0, 3))]
        for _ in range(count)
    ]


@pytest.mark.processor
def test_every_text_has_its_phrases_whatever_else_is_asked(engines: dict[Target, Engine]) -> None:
    texts, phrases = TEXTS * 5, lists_of_phrases(5 * len(TEXTS))
    searches: list[tuple[int, Any]] = [(1, {}), (5, {"stop_rule": "best"})]
    searches.append((2, {"suppress_tokens": [5, 6, 7], "no_repeat_ngram_size": 2, "max_length_offset": 1}))
    for penalty in (-0.5, 0.5, 1.0, 2.0):  # which raise and lower the scores of tokens that a text has
        searches += [(width, {"presence_penalty": penalty, "frequency_penalty": 0.5}) for width in (2, 3, 4)]
    for beam_size, options in searches:
        found = {
            target: engine.translate(texts, phrases=phrases, beam_size=beam_size, n_best=beam_size, **options)
            for target, engine in engines.items()
        }
        for several, wanted in zip(found["native"], phrases, strict=True):
            assert all(occurs(phrase, one.tokens) for one in several for phrase in wanted)
        same = [
            [one.tokens for one in first] == [one.tokens for one in second]
            for first, second in zip(found["native"], found["portable"], strict=True)
        ]
        assert all(same), "both kinds of engines search alike"


@pytest.mark.processor
def test_a_sentence_of_a_batch_has_its_own_phrases(engines: dict[Target, Engine]) -> None:
    engine, phrases = engines["native"], lists_of_phrases(len(TEXTS))
    phrases[2] = []
    together = engine.translate(TEXTS, phrases=phrases)
    assert together == [engine.translate([text], phrases=[own])[0] for text, own in zip(TEXTS, phrases, strict=True)]
    assert together[2] == engine.translate([TEXTS[2]])[0]
    given: Any = {"prefixes": [[9, 8, 7]], "max_length_offset": 9}
    assert engine.translate(["one"], phrases=[[[8, 7]]], **given) == engine.translate(["one"], **given)


@pytest.mark.processor
def test_phrases_are_texts_and_lines_of_a_file(
    small_engines: SmallEngines, engines: dict[Target, Engine], tmp_path: Path, xformc: CommandLine
) -> None:
    engine = engines["native"]
    (text,) = engine.translate(["two dogs"], phrases=[["hello world", "snow"]], n_best=1)[0]
    assert "hello world" in text.text and "snow" in text.text
    (tmp_path / "phrases").write_text("hello world\tsnow\n\n")
    found = xformc(
        "translate",
        small_engines("search", "native"),
        "--phrases",
        tmp_path / "phrases",
        "--n-best",
        "1",
        stdin="two dogs\none\n",
    )
    assert found.code == 0, found.err
    assert found.out.splitlines() == [text.text, engine.translate(["one"], n_best=1)[0][0].text]


def test_phrases_that_do_not_fit_are_refused(engines: dict[Target, Engine]) -> None:
    engine = engines["portable"]
    for phrases, message in (
        ("dogs", "a list of phrases is needed for each text, not one text"),
        (["dogs"], "line 1: a list of phrases is needed for each text, not one text"),
        ([[[]]], "line 1: a phrase must be 1 or more tokens"),
        ([[[3]]], "line 1: a phrase must be 1 or more tokens"),
        (
            [["snow \u2603"]],
            "line 1: the phrase 'snow \u2603' has a character that the vocabulary lacks, so no text has it",
        ),
        ([[[4] * 2000]], "line 1: the phrases have 2,000 tokens; a text of this engine has room for 1,000"),
        ([], "line 1: there are no phrases for this text"),
    ):
        given: Any = phrases
        with pytest.raises(UserError) as caught:
            engine.translate(["one"], phrases=given)
        assert str(caught.value).startswith(message)
    with pytest.raises(UserError, match="phrases: no effect on samples"):
        engine.translate(["one"], phrases=[["dogs"]], samples=2)


def test_reference_follows_phrases_by_tokens() -> None:
    phrases = [[1, 2], [1, 3], [5]]
    assert next_tokens(phrases, [9]) == {1, 5}
    assert next_tokens(phrases, [9, 1]) == {2, 3, 5}
    assert next_tokens(phrases, [9, 1, 2, 1]) == {3, 5}
    assert [bank(phrases, text) for text in ([9], [9, 1], [1, 2], [1, 2, 1], [1, 2, 5])] == [0, 1, 2, 3, 3]
    turns = in_turn([("a", 0), ("b", 0), ("c", 2), ("d", 1), ("e", 2)], lambda one: one[1])
    assert [name for name, _ in turns] == ["c", "d", "a", "e", "b"]


@pytest.mark.processor
def test_groups_of_the_beam_are_asked_for_and_refused(
    small_engines: SmallEngines, engines: dict[Target, Engine], xformc: CommandLine
) -> None:
    engine, groups = engines["native"], {"beam_size": 4, "n_best": 4, "beam_groups": 2, "diversity_penalty": 5.0}
    options: Any = groups
    found = engine.translate(["two dogs"], **options)[0]
    assert found != engine.translate(["two dogs"], beam_size=4, n_best=4)[0]
    words = [word for name, value in groups.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    printed = xformc("translate", small_engines("search", "native"), *words, stdin="two dogs\n")
    assert [line.split(" ||| ")[1] for line in printed.out.splitlines()] == [one.text for one in found]
    with pytest.raises(UserError, match="beam_groups must divide beam_size, which is 5, not 2"):
        engine.translate(["one"], beam_size=5, beam_groups=2)
    with pytest.raises(UserError, match="beam_groups: no effect with phrases"):
        engine.translate(["one"], phrases=[["dogs"]], **options)
    with pytest.raises(UserError, match="beam_groups has no effect with slots"):
        engine.translate(["one"], slots=2, **options)
    with pytest.raises(UserError, match="beam_groups must be an integer from 1 to 1024, not 0"):
        engine.translate(["one"], beam_groups=0)
