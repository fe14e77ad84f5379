"""Choosing among hypotheses after the search, by engines with random weights that were built here."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, cast

import pytest
import sacrebleu
from tiny_engine import SENTENCES, train_tokenizer

from tests.command_line import CommandLine, mistake
from tests.conformance.engines import FOLDER
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, Hypothesis, load, minimum_bayes_risk

SPEC = """\
extends: transformer_base
sizes: {{layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: {size}}}
train: {{seed: {seed}}}
decode: {{max_length: {{factor: 1, offset: 6}}}}
"""
TEXTS = [*SENTENCES[:3], "", *SENTENCES[3:]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of two engines with one vocabulary and different weights."""
    folder = tmp_path_factory.mktemp("choose")
    size = train_tokenizer(folder / "tokenizer.model")
    files = {name: folder / "tokenizer.model" for name in ("source", "target")}
    for seed in (1, 2):
        (folder / "spec.yaml").write_text(SPEC.format(size=size, seed=seed), encoding="utf-8")
        build_engine(load_spec(folder / "spec.yaml"), None, files, "portable", folder / str(seed))
    return folder / "1", folder / "2"


@pytest.fixture(scope="module")
def pair(folders: tuple[Path, Path]) -> tuple[Engine, Engine]:
    first, second = (load(folder, threads=1) for folder in folders)
    return first, second


def test_reranked_scores_are_the_weighted_means(pair: tuple[Engine, Engine]) -> None:
    """Of the search's score and of what `score` gives for the text."""
    first, second = pair
    found = first.translate(TEXTS, n_best=4)
    for weight in (0.25, 0.5, 1.0):
        changed = second.rerank(TEXTS, found, weight=weight)
        for text, before, after in zip(TEXTS, found, changed, strict=True):
            others = second.score([text] * len(before), [one.text for one in before], beam_size=1)
            means = [(1 - weight) * one.score + weight * two.score for one, two in zip(before, others, strict=True)]
            order = sorted(range(len(before)), key=lambda rank: -means[rank])
            assert [one.tokens for one in after] == [before[rank].tokens for rank in order]
            assert [one.score for one in after] == pytest.approx([means[rank] for rank in order], abs=1e-5)
            assert [one.features["own"] for one in after] == [before[rank].score for rank in order]
            assert all("rerank" in one.features for one in after)
    best = [one[0].text for one in second.rerank(TEXTS, found)]
    assert best != [one[0].text for one in found], "another engine has another order"


def test_a_weight_of_zero_keeps_the_order_and_scores(pair: tuple[Engine, Engine]) -> None:
    first, second = pair
    found = first.translate(TEXTS, n_best=4)
    for before, after in zip(found, second.rerank(TEXTS, found, weight=0.0), strict=True):
        assert [(one.tokens, one.score) for one in before] == [(one.tokens, one.score) for one in after]


def test_streams_rerank_as_lists_do_within_their_window(pair: tuple[Engine, Engine]) -> None:
    first, second = pair
    every = second.rerank(TEXTS, first.translate(TEXTS, n_best=4))
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for text in TEXTS:
            read += 1
            yield text

    texts, again = tee(lines())
    results = second.rerank_stream(again, first.translate_stream(texts, window=1, n_best=4), window=1)
    for number, (one, expected) in enumerate(zip(results, every, strict=True), start=1):
        assert read == number, "each text is answered before the next is read"
        assert [two.tokens for two in one] == [two.tokens for two in expected]
        assert [two.score for two in one] == pytest.approx([two.score for two in expected], abs=1e-5)


def test_lists_of_another_length_are_refused(pair: tuple[Engine, Engine]) -> None:
    first, second = pair
    found = first.translate(TEXTS[:2], n_best=2)
    with pytest.raises(UserError, match="line 2: there are no hypotheses for this text"):
        second.rerank(TEXTS[:2], found[:1])
    with pytest.raises(UserError, match="there are more lists of hypotheses than texts, which are 1"):
        second.rerank(TEXTS[:1], found)
    with pytest.raises(UserError, match="weight must be a number from 0 to 1, not 2"):
        second.rerank(TEXTS[:2], found, weight=2)
    with pytest.raises(UserError, match="a list of texts is needed"):
        second.rerank("one", found)
    with load(FOLDER / "copy", threads=1) as old, pytest.raises(UserError, match="cannot score given texts"):
        old.rerank(TEXTS[:2], found)


def written(*texts: str) -> list[Hypothesis]:
    return [Hypothesis(text, -float(rank), ()) for rank, text in enumerate(texts)]


def test_minimum_bayes_risk_is_the_mean_utility() -> None:
    """Of sacreBLEU's sentence scores; the text that is most like the others wins."""
    found = written("ein hund läuft", "der hund läuft", "der hund läuft", "der hund springt", "vier katzen")
    metrics: dict[str, Any] = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True)}
    for name, metric in metrics.items():
        means = {
            one.text: sum(metric.sentence_score(one.text, [other.text]).score for other in found) / len(found)
            for one in found
        }
        chosen = minimum_bayes_risk(found, "chrf" if name == "chrf" else "bleu")
        assert chosen[0].text == "der hund läuft" and chosen[-1].text == "vier katzen"
        assert [one.score for one in chosen] == pytest.approx(sorted((means[one.text] for one in found), reverse=True))
        assert [one.features["own"] for one in chosen][:2] == [-1.0, -2.0], "equal ones keep their order"
    closer = minimum_bayes_risk(found, lambda text, other: -float(abs(len(text) - len(other))))
    assert closer[0].text == "ein hund läuft"
    assert minimum_bayes_risk([]) == []
    assert minimum_bayes_risk(written("", ""))[0].text == ""


def test_hypotheses_of_a_search_weigh_as_their_probabilities() -> None:
    """Of 0.9, 0.09 and 0.01, with scores that a length penalty of 1 divided by (5 + 1) / 6 and (5 + 7) / 6."""
    likely, long, rare = (math.log(share) for share in (0.9, 0.09, 0.01))
    found = [Hypothesis("ab", likely, (7,)), Hypothesis("abcd", long / 2, (7,) * 7), Hypothesis("abcdef", rare, (7,))]

    def nearness(text: str, other: str) -> float:
        return -float(abs(len(text) - len(other)))

    weighted = minimum_bayes_risk(found, nearness, length_penalty=1.0)
    assert [one.text for one in weighted] == ["ab", "abcd", "abcdef"]
    assert weighted[0].score == pytest.approx(-(0.09 * 2 + 0.01 * 4))
    assert minimum_bayes_risk(found, nearness)[0].text == "abcd", "as samples they weigh the same"
    never = [Hypothesis("ab", -math.inf, (7,)), Hypothesis("ab", -math.inf, (7,))]
    assert [one.score for one in minimum_bayes_risk(never, nearness, length_penalty=1.0)] == [0, 0]
    assert minimum_bayes_risk([], length_penalty=1.0) == []


def test_wrong_utilities_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="the utility must be chrf or bleu, or a function, not 'ter'"):
        minimum_bayes_risk(written("one"), cast(Any, "ter"))
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package sacrebleu: pip install 'xformc\[train\]'"):
        minimum_bayes_risk(written("one"))


def ids_of(found: Iterable[Sequence[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[one.tokens for one in several] for several in found]


def test_samples_of_an_example_have_seeds_of_their_own() -> None:
    texts = ["one two three", "", "hello world"]
    with load(FOLDER / "draw", threads=1) as draws:
        found = draws.transcribe(texts, samples=3, seed=5)
        for place, (text, several) in enumerate(zip(texts, found, strict=True)):
            alone = [draws.transcribe([text], seed=5 + 3 * place + number)[0][0] for number in range(3)]
            assert ids_of([several]) == ids_of([alone])
        assert len(set(ids_of(found)[0])) == 3
        assert ids_of(draws.transcribe_stream(iter(texts), samples=3, seed=5, window=1)) == ids_of(found)
        with pytest.raises(UserError, match="samples must be an integer from 1 to 10000, not 0"):
            draws.transcribe(texts, samples=0)
    with load(FOLDER / "join", threads=1) as searches, pytest.raises(UserError, match="samples: no effect on"):
        searches.transcribe([("one", "two")], samples=2)


def test_the_command_line_reranks(
    xformc: CommandLine, folders: tuple[Path, Path], pair: tuple[Engine, Engine], tmp_path: Path
) -> None:
    first, second = folders
    expected = pair[1].rerank(TEXTS, pair[0].translate(TEXTS, n_best=4), weight=0.75)
    chosen = (first, "--rerank", second, "--rerank-weight", "0.75", "--threads", "1")
    given = "".join(f"{text}\n" for text in TEXTS)
    plain = xformc("translate", *chosen, "--scores", stdin=given)
    assert (plain.code, plain.err) == (0, "")
    assert plain.out.splitlines() == [f"{one.score:.4f}\t{one.text}" for one, *_ in expected]
    assert xformc("translate", *chosen, "--scores", "--window", "1", stdin=given).out == plain.out
    listed = xformc("translate", *chosen, "--n-best", "2", stdin=given).out.splitlines()
    _, _, features, score = listed[0].split(" ||| ")
    named = dict(zip(*[iter(features.split())] * 2, strict=True))
    best = expected[0][0]
    assert float(score) == pytest.approx(best.score, abs=1e-3)
    assert float(named["own="]) == pytest.approx(best.features["own"], abs=1e-3)
    assert float(named["logprob="]) < float(named["own="]) < 0, "before the length penalty"
    assert float(named["rerank="]) == pytest.approx(best.features["rerank"], abs=1e-3)
    assert sum(line.startswith("0 |||") for line in listed) == 2
    found = [json.loads(line) for line in xformc("translate", *chosen, "--json", stdin=given).out.splitlines()]
    assert found[0]["hypotheses"][0]["features"] == pytest.approx(best.features, abs=1e-5)
    assert len(found[0]["hypotheses"]) == 1


def test_wrong_second_engines_are_refused(xformc: CommandLine, folders: tuple[Path, Path]) -> None:
    first, second = folders
    for name, message in {
        "copy": "translation cannot score given texts\nhint: build with --target native, cpu or portable",
        "generate": "language_model cannot score given texts\nhint: build with --target native, cpu or portable",
        "judged": "transcription reads first (tokens), second (tokens), and spec reads source (tokens)",
    }.items():
        assert message in mistake(xformc("translate", first, "--rerank", FOLDER / name, stdin="one\n"))
    one = xformc("translate", first, "--rerank", second, "--beam-size", "1", stdin="one\n")
    assert "--rerank chooses among the hypotheses of a beam, which has 1\nhint: try --beam-size 8" in mistake(one)
    alone = xformc("translate", first, "--rerank-weight", "0.2", stdin="one\n")
    assert "--rerank-weight needs --rerank" in mistake(alone)
    wide = xformc("translate", first, "--rerank", second, "--rerank-weight", "2", stdin="one\n")
    assert "weight must be a number from 0 to 1, not 2.0" in mistake(wide)
    both = xformc("translate", first, "--rerank", second, "--mbr", "chrf", stdin="one\n")
    assert "--rerank and --mbr exclude each other" in mistake(both)


def test_the_command_line_takes_a_utility(
    xformc: CommandLine, folders: tuple[Path, Path], pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "".join(f"{text}\n" for text in TEXTS)
    found = pair[0].translate(TEXTS, beam_size=5, n_best=5)
    alpha = pair[0].manifest.search.length_penalty
    expected = [minimum_bayes_risk(one, "bleu", length_penalty=alpha)[0] for one in found]
    chosen = ("translate", folders[0], "--mbr", "bleu", "-b", "5", "--threads", "1", "--scores")
    found = xformc(*chosen, "--window", "1", stdin=given)
    assert found.out.splitlines() == [f"{one.score:.4f}\t{one.text}" for one in expected]
    narrow = xformc("translate", folders[0], "--mbr", "chrf", "-b", "1", stdin="one\n")
    assert "--mbr chooses among the hypotheses of a beam, which has 1" in mistake(narrow)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    missing = mistake(xformc(*chosen, stdin="one\n"))
    assert (
        missing == "this command needs the package sacrebleu, which is not installed\nhint: pip install 'xformc[train]'"
    )
