"""The coverage penalty as calls set it: in Python, on the command line, in libxformc, and what does not go with it."""

from typing import Any

import pytest
from command_line import CommandLine

from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.errors import UserError
from xformc.runtime import load
from xformc.runtime.checks.agreement import compare_runtimes
from xformc.runtime.libxformc import CppEngine

pytestmark = pytest.mark.processor


def test_engines_without_coverage_refuse_the_penalty(small_engines: SmallEngines) -> None:
    engine = load(small_engines("search", "native"), threads=1)
    with pytest.raises(UserError, match=r"the search of .* has no coverage_penalty") as error:
        engine.translate(TEXTS, coverage_penalty=0.2)
    assert error.value.hint is not None and "decode: coverage" in error.value.hint
    assert engine.translate(TEXTS, coverage_penalty=0.0) == engine.translate(TEXTS)


def test_each_text_has_its_own_penalty(small_engines: SmallEngines) -> None:
    engine, penalties = load(small_engines("covering", "native"), threads=1), [0.0, 0.3, 4.0, 0.3, 0.0, 1.0]
    free, usual = engine.translate(TEXTS, coverage_penalty=0.0), engine.translate(TEXTS)
    assert all(one[0].score >= other[0].score for one, other in zip(free, usual, strict=True))
    assert [one[0].score for one in free] != [one[0].score for one in usual]
    for options in ({"coverage_penalty": penalties}, {"each": [{"coverage_penalty": one} for one in penalties]}):
        given: Any = options
        found = engine.translate(TEXTS, **given)
        for one, text, penalty in zip(found, TEXTS, penalties, strict=True):
            (alone,) = engine.translate([text], coverage_penalty=penalty)
            assert [each.tokens for each in one] == [each.tokens for each in alone]
            assert [each.score for each in one] == pytest.approx([each.score for each in alone], abs=1e-5)


def test_scores_of_given_texts_have_no_penalty(small_engines: SmallEngines) -> None:
    engine = load(small_engines("covering", "native"), threads=1)
    best = [one[0] for one in engine.translate(TEXTS, coverage_penalty=0.0)]
    scored = engine.score(TEXTS, [one.tokens for one in best])
    assert [one.score for one in scored] == pytest.approx([one.score for one in best], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage_penalty": -0.1}, "coverage_penalty must be a number from 0 to 100, not -0.1"),
        ({"slots": 2}, "has no batches that refill"),
    ],
)
def test_what_coverage_does_not_go_with_is_refused(
    small_engines: SmallEngines, options: dict[str, Any], message: str
) -> None:
    engine = load(small_engines("covering", "native"), threads=1)
    with pytest.raises(UserError, match=message):
        engine.translate(TEXTS, **options)


def test_the_command_line_sets_the_penalty(xformc: CommandLine, small_engines: SmallEngines) -> None:
    folder, stdin = small_engines("covering", "native"), "\n".join(TEXTS)
    engine = load(folder, threads=1)
    expected = [one[0].text for one in engine.translate(TEXTS, coverage_penalty=4.0)]
    done = xformc("translate", folder, "--coverage-penalty", "4", "--n-best", "1", stdin=stdin)
    assert done.out.splitlines() == expected
    several = xformc("translate", folder, stdin=stdin).out.splitlines()
    assert all(" ||| length= " in line for line in several), "a score with the penalty tells no log probability"
    free = xformc("translate", folder, "--coverage-penalty", "0", stdin=stdin).out.splitlines()
    assert all(" ||| logprob= " in line for line in free)
    refused = xformc("translate", folder, "--mbr", "chrf", stdin=stdin)
    assert refused.code == 2 and "--mbr weighs hypotheses by their probabilities" in refused.err


def test_libxformc_has_the_same_penalty(small_engines: SmallEngines) -> None:
    folder = small_engines("covering", "native")
    assert compare_runtimes(folder).passed
    ours, theirs = load(folder, threads=1), CppEngine(folder, threads=1)
    for penalty in (0.0, 0.3, 4.0):
        assert theirs.translate(TEXTS, coverage_penalty=penalty) == ours.translate(TEXTS, coverage_penalty=penalty)
    assert theirs.translate(TEXTS) == ours.translate(TEXTS)
    with pytest.raises(UserError, match="has no coverage_penalty"):
        CppEngine(small_engines("search", "native"), threads=1).translate(TEXTS, coverage_penalty=0.2)
