"""Constraints, alternatives and biased prefixes: texts match random automata, and the best of all of them is found."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command_line import CommandLine, mistake
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import Engine, load
from xformc.runtime.constraints.automaton import Automaton, matching_of, tokens_to_end
from xformc.runtime.constraints.grammar import of_bytes
from xformc.runtime.generation.constrain import Spelled
from xformc.runtime.libxformc import CppEngine

TARGETS: tuple[Target, ...] = ("native", "portable")
END, FIRST, NEVER = 3, 4, [0, 2, 3]
"""The end token, the first ordinary one, and the special tokens that no automaton has."""


@pytest.fixture(scope="module")
def engines(small_engines: SmallEngines) -> dict[Target, Engine]:
    return {target: load(small_engines("search", target), threads=1) for target in TARGETS}


def random_automaton(random: np.random.Generator, size: int, share: float = 0.1) -> Automaton:
    """Up to 5 states, in each of which this share of the tokens may follow."""
    states = int(random.integers(1, 6))
    table = np.where(random.random((states, size)) < share, random.integers(0, states, (states, size)), -1)
    return Automaton(table, random.random(states) < 0.5, int(random.integers(states)))


def matches(automaton: Automaton, tokens: tuple[int, ...], *, after: int = 0) -> bool:
    state = automaton.start
    for token in tokens[after:]:
        if token == END:
            break
        state = int(automaton.next[state, token]) if token not in NEVER else -1
        if state < 0:
            return False
    return bool(automaton.final[state])


def drawn(engine: Engine, seed: int, count: int) -> list[Automaton]:
    """Random automata that match some text."""
    random, size = np.random.default_rng(seed), engine.manifest.inputs["target"].pieces
    found: list[Automaton] = []
    while len(found) < count:
        one = random_automaton(random, size)
        table = np.where(np.isin(np.arange(size), NEVER), -1, one.next)
        if tokens_to_end(table, one.final)[one.start] < 20:
            found.append(one)
    return found


@pytest.mark.processor
def test_every_text_matches_and_both_kinds_of_engines_find_the_same(engines: dict[Target, Engine]) -> None:
    automata: list[Automaton | None] = [*drawn(engines["native"], 1, 11), None]
    prefixes = [[9, 8], [], [7]] * 4
    searches: list[dict[str, Any]] = [
        {"beam_size": 1, "n_best": 1},
        {"beam_size": 4, "n_best": 4, "stop_rule": "best", "max_length_offset": 0, "max_length_factor": 0.3},
        {"beam_size": 3, "prefixes": prefixes, "repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
    ]
    for options in searches:
        given: dict[str, Any] = {"constraint": automata, **options}
        native, portable = (engines[target].translate(TEXTS * 2, **given) for target in TARGETS)
        for several, others, automaton, prefix in zip(native, portable, automata, prefixes, strict=True):
            assert [one.tokens for one in several] == [one.tokens for one in others]
            assert np.allclose([one.score for one in several], [one.score for one in others], atol=1e-4)
            after = len(prefix) if "prefixes" in options else 0
            there = [one for one in several if one.score > -np.inf]
            assert there or after or "no_repeat_ngram_size" in options
            assert automaton is None or all(matches(automaton, one.tokens, after=after) for one in there)
    free = engines["native"].translate(TEXTS * 2)
    assert engines["native"].translate(TEXTS * 2, constraint=automata)[-1] == free[-1], "neighbours have constraints"


def test_the_best_of_all_texts_is_found_if_the_beam_holds_them(engines: dict[Target, Engine]) -> None:
    random, engine = np.random.default_rng(4), engines["native"]
    size = engine.manifest.inputs["target"].pieces
    for text in TEXTS[:3]:
        table = np.full((4, size), -1)
        for state in range(3):
            table[state, random.choice(np.arange(FIRST, size), 3, replace=False)] = random.integers(state + 1, 4, 3)
        automaton = Automaton(table, np.array([False, True, False, True]))
        texts = texts_of(automaton)
        scores = engine.score([text] * len(texts), [[*one, END] for one in texts], length_penalty=0.0)
        best = max(scores, key=lambda one: one.score)
        options: Any = {"beam_size": 24, "n_best": 24, "length_penalty": 0.0, "stop_rule": "complete"}
        (found,) = engine.translate([text], constraint=automaton, **options)
        assert found[0].tokens == best.tokens and found[0].score == pytest.approx(best.score, abs=1e-4)
        assert {one.tokens for one in found} == {one.tokens for one in scores}


def texts_of(automaton: Automaton) -> list[list[int]]:
    """All texts of an automaton without cycles."""
    found, waiting = list[list[int]](), [(automaton.start, list[int]())]
    while waiting:
        state, text = waiting.pop()
        if automaton.final[state]:
            found.append(text)
        following = np.flatnonzero(automaton.next[state] >= 0)
        waiting += [(int(automaton.next[state, token]), [*text, int(token)]) for token in following]
    return found


def test_texts_match_expressions_and_schemas(
    small_engines: SmallEngines, engines: dict[Target, Engine], tmp_path: Path, xformc: CommandLine
) -> None:
    pytest.importorskip("outlines_core", reason="the extra constraints is not installed")
    engine, expressions = engines["portable"], ["(two|hello) ?[a-m]{1,9}", None, "(the|a) [a-z]+ dogs?"]
    found = engine.translate(TEXTS[:3], regex=expressions, n_best=3)
    for several, regex in zip(found, expressions, strict=True):
        assert regex is None or all(re.fullmatch(regex, one.text) for one in several), several
    assert any(one.tokens[0] != engine.translate(["one"])[0][0].tokens[0] for one in found[0])
    (tmp_path / "schema.json").write_text('{"enum": [1, 22]}')
    command = "translate", small_engines("search", "portable")
    assert "matches no text" in mistake(xformc(*command, "--json-schema", tmp_path / "schema.json", stdin="one\n"))
    shown = xformc(*command, "--regex", "(two|hello) ?[a-m]{1,9}", "--n-best", "1", stdin="two dogs play\n")
    assert shown.out == found[0][0].text + "\n"
    with pytest.raises(UserError, match="regex: "):
        engine.translate(["two"], regex="[a-f")
    with pytest.raises(UserError, match="json_schema is no JSON"):
        engine.translate(["two"], json_schema="{")


@pytest.mark.processor
def test_alternatives_are_the_best_next_tokens_with_the_best_texts(
    small_engines: SmallEngines, engines: dict[Target, Engine], xformc: CommandLine
) -> None:
    engine, texts, prefixes = engines["native"], [*TEXTS[:3], ""], [[9, 8], [], [7], [5]]
    found = engine.translate(texts, prefixes=prefixes, alternatives=4, suppress_tokens=[30], beam_size=2)
    assert found[3] == engine.translate([""])[0]
    for text, prefix, several in zip(texts[:3], prefixes, found, strict=False):
        begun = [[*one.tokens[: len(prefix) + 1]] for one in several]
        assert len({*map(tuple, begun)}) == 4 and all(one[:-1] == prefix for one in begun)
        others = [[*prefix, token] for token in range(FIRST, 40) if token != 30 and [*prefix, token] not in begun]
        every = [*begun, *others]
        scores = engine.score([text] * len(every), every, length_penalty=0.0, token_scores=True)
        last = [one.token_scores[len(prefix)] for one in scores]
        assert last[:4] == sorted(last[:4], reverse=True) and max(last[4:]) <= last[3]
        given: dict[str, Any] = {"suppress_tokens": [30], "beam_size": 2, "n_best": 1}
        assert [[one] for one in several] == engine.translate([text] * 4, prefixes=begun, **given)
    for given, message in (
        ({"alternatives": 0}, "alternatives must be an integer from 1 to 20"),
        ({"alternatives": 2, "n_best": 2}, "alternatives and n_best exclude each other"),
        ({"alternatives": 2, "prefix_bias": 0.5}, "alternatives and prefix_bias exclude each other"),
        ({"alternatives": 2, "regex": "a"}, "alternatives and regex exclude each other"),
    ):
        with pytest.raises(UserError, match=message):
            engine.translate(["one"], **given)
    shown = xformc(
        "translate", small_engines("search", "portable"), "--alternatives", "3", stdin="one\n"
    ).out.splitlines()
    assert [line.split(" ||| ")[1] for line in shown] == [
        one.text for one in engines["portable"].translate(["one"], alternatives=3)[0]
    ]


@pytest.mark.processor
def test_biased_prefixes_give_the_same_bits_in_any_batch(engines: dict[Target, Engine]) -> None:
    engine = engines["native"]
    prefixes, shares = [[9, 8], [7], [30, 63], [], [5, 5, 5], [12]], [0.5, 0.0, 0.001, 0.3, 0.002, 0.999]
    found = engine.translate(TEXTS, prefixes=prefixes, prefix_bias=shares)
    assert found == engine.translate(TEXTS, prefixes=prefixes, prefix_bias=shares, slots=2)
    one = zip(TEXTS, prefixes, shares, strict=True)
    assert found == [engine.translate([text], prefixes=[own], prefix_bias=share)[0] for text, own, share in one]
    assert any(several[0].tokens[: len(own)] != (*own,) for several, own in zip(found, prefixes, strict=True))


@pytest.mark.processor
def test_libxformc_biases_prefixes(engines: dict[Target, Engine], small_engines: SmallEngines) -> None:
    cpp, prefixes = CppEngine(small_engines("search", "native"), threads=1), ["two", "", "a man", "zwei", "b", "one"]
    found = [engines["native"].translate(TEXTS, prefixes=prefixes, prefix_bias=share) for share in (0.0, 0.002, 0.999)]
    for share, expected in zip((0.0, 0.002, 0.999), found, strict=True):
        assert cpp.translate(TEXTS, prefixes=prefixes, prefix_bias=share) == expected
    assert found[0] != found[1] != found[2]
    with pytest.raises(UserError, match=r"prefix_bias must be a number from 0 to 0.999, not 1"):
        cpp.translate(["one"], prefix_bias=1.0)
    assert cpp.score(TEXTS, prefixes, prefix_bias=0.5) == cpp.score(TEXTS, prefixes)


def test_constraints_that_do_not_fit_are_refused(engines: dict[Target, Engine]) -> None:
    engine = engines["portable"]
    size = engine.manifest.inputs["target"].pieces
    some = Automaton(np.zeros((1, size), np.int64), np.array([True]))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"constraint": some, "regex": "a"}, "regex and constraint exclude each other"),
        ({"constraint": some, "phrases": [[]]}, "constraint and phrases exclude each other"),
        ({"constraint": some, "samples": 2}, "constraint and samples exclude each other"),
        ({"constraint": some, "slots": 2}, "constraint and slots exclude each other"),
        ({"constraint": "a"}, "constraint must be an Automaton, or a list with one for each text"),
        ({"regex": 5}, "regex must be a regular expression"),
        ({"constraint": [some, some]}, "there are more constraints than texts"),
        ({"constraint": replace(some, next=some.next[:, 1:])}, "an automaton needs integers"),
        ({"constraint": replace(some, next=some.next + 1)}, "the states of an automaton must be from 0 to 0"),
        ({"constraint": replace(some, final=~some.final)}, "the constraint matches no text"),
        ({"prefix_bias": 1.0}, "prefix_bias must be a number from 0 to 0.999"),
    ]
    for given, message in wrong:
        with pytest.raises(UserError, match=message):
            engine.translate(["one"], **given)
    old = replace(engine, manifest=replace(engine.manifest, controls=("prefix",)))
    with pytest.raises(UserError, match="has no constraints"):
        old.translate(["one"], constraint=some)


def test_tokens_lead_where_their_bytes_lead(engines: dict[Target, Engine]) -> None:
    special = engines["portable"].manifest.inputs["target"].special
    table = np.full((4, 256), 3, np.int32)  # "ab" or "a b"
    table[0, ord("a")], table[1, ord("b")], table[1, ord(" ")], table[2, ord(" ")] = 1, 2, 0, 3
    table[0, ord("b")] = 2
    pieces = [b"", b"", b"", b"", b" a", b"b", b"ab", b" b", b" ", b"a"]
    found = of_bytes(table, np.array([False, False, True]), 0, Spelled(pieces, special, strips=True))
    accepted = [one for one in ([4, 5], [6], [9, 7], [4, 7], [8, 9, 5], [8, 4, 5], [5]) if matches(found, (*one, END))]
    assert accepted == [[4, 5], [6], [9, 7], [4, 7], [8, 9, 5], [5]]
    own = matching_of([found, None, found], replace(engines["portable"].manifest.inputs["target"], vocabulary=10))
    assert own.starts[0] == own.starts[2] and own.starts[1] == -1 and own.room == 2
