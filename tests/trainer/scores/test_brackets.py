from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xformc.errors import UserError
from xformc.trainer.scores.brackets import bracket_measures, brackets, parse_tree, score_brackets

MONDAY = "(TOP (S (INTJ (RB No)) (, ,) (NP (PRP it)) (VP (VBD was) (RB n't) (NP (NNP Black) (NNP Monday))) (. .)))"


def spans(text: str, *, tagged: bool = True) -> Counter[tuple[str, int, int]]:
    tree = parse_tree(text)
    assert tree is not None
    return brackets(tree, tagged=tagged)


def test_brackets_leave_out_the_root_tags_and_punctuation() -> None:
    assert spans(MONDAY) == {("S", 0, 6): 1, ("INTJ", 0, 1): 1, ("NP", 1, 2): 1, ("VP", 2, 6): 1, ("NP", 4, 6): 1}


def test_brackets_leave_out_what_spans_only_traces() -> None:
    """The example of evalb's documentation: the SBAR goes with its traces."""
    found = spans("(VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))")
    assert found == {("VP", 0, 1): 1}


def test_brackets_drop_functions_and_join_prt_with_advp() -> None:
    assert spans("(S (NP-SBJ-1 (DT the)) (PRT=2 (RP up)))") == {("S", 0, 2): 1, ("NP", 0, 1): 1, ("ADVP", 1, 2): 1}


def test_brackets_count_one_that_is_there_twice_twice() -> None:
    assert spans("(NP (NP (DT the) (NN man)))") == {("NP", 0, 2): 2}


def test_brackets_of_words_without_tags_are_all_constituents() -> None:
    found = spans("(S (NP XX) (VP XX (NP XX XX)) .)", tagged=False)
    assert found == {("S", 0, 4): 1, ("NP", 0, 1): 1, ("VP", 1, 4): 1, ("NP", 2, 4): 1}


@pytest.mark.parametrize("text", ["( S ( NP the dog ) ( VP barks ) )", "(S (NP the dog )NP (VP barks )VP )S"])
def test_parse_tree_takes_spaces_and_labelled_ends(text: str) -> None:
    assert parse_tree(text) == parse_tree("(S (NP the dog) (VP barks))")


def test_parse_tree_takes_a_root_without_a_label() -> None:
    tree = parse_tree("( (S (NN dog)) )")
    assert tree is not None
    assert tree.label == ""


@pytest.mark.parametrize(
    "text",
    ["", "dog", "(S", "(S (NP dog)", "(S dog))", ")", "(S dog) (S cat)", "(S dog) cat", "(S (NP dog )VP )", "(" * 999],
)
def test_parse_tree_refuses_what_is_no_tree(text: str) -> None:
    assert parse_tree(text) is None


def test_score_brackets_counts_over_all_sentences() -> None:
    references = ["(S (NP (DT the) (NN dog)) (VP (VBZ barks)))", "(S (NP (PRP it)) (VP (VBZ sleeps)))"]
    outputs = ["(S (NP (DT the)) (VP (NN dog) (VBZ barks)))", "(S (NP (PRP it))"]
    score = score_brackets(outputs, references)
    assert (score.found, score.wanted, score.matched, score.unparsed) == (3, 6, 1, 1)
    assert (score.precision, score.recall) == (1 / 3, 1 / 6)
    assert score.f1 == pytest.approx(2 / 9)


def test_score_brackets_matches_as_many_as_both_have() -> None:
    score = score_brackets(["(NP (NP (NP a b)))"], ["(NP (NP a b))"])
    assert (score.found, score.wanted, score.matched) == (3, 2, 2)


def test_score_brackets_sees_from_the_references_whether_words_have_tags() -> None:
    tagged, plain = "(S (NP (NN dog)) (VP (VB runs)))", "(S (NP dog) (VP runs fast))"
    assert score_brackets([tagged], [tagged]).wanted == 3
    assert score_brackets([plain], [plain]).wanted == 3


def test_score_brackets_without_any_is_zero() -> None:
    score = score_brackets(["no"], ["(TOP (. .))"])
    assert (score.precision, score.recall, score.f1) == (0, 0, 0)


def test_score_brackets_refuses_a_reference_that_is_no_tree() -> None:
    with pytest.raises(UserError, match=r"the reference is not a tree: \(S") as caught:
        score_brackets(["x", "x"], ["(S a)", "(S"], "test.trees")
    assert caught.value.place == "test.trees:2"


TREES = st.recursive(
    st.sampled_from(["(NN dog)", "(VB runs)", "(. .)"]),
    lambda inner: st.builds(
        "({} {})".format, st.sampled_from(["NP", "VP", "S"]), st.lists(inner, min_size=1).map(" ".join)
    ),
)


@given(TREES.map("(TOP (S (NP (NN it)) {}))".format), TREES.map("(TOP (S {}))".format))
def test_score_brackets_of_a_tree_and_itself_is_one_and_of_two_is_symmetric(first: str, second: str) -> None:
    assert score_brackets([first], [first]).f1 == 1
    one, other = score_brackets([first], [second]), score_brackets([second], [first])
    assert (one.precision, one.recall, one.f1) == (other.recall, other.precision, other.f1)


def test_bracket_measures_say_how_many() -> None:
    lines = [measure.line() for measure in bracket_measures(["(S (NP a) b)", "no"], ["(S (NP a) b)", "(S a b)"])]
    assert lines == [
        "bracket F1    80.0%   labelled, counted as evalb does; 1 of 2 outputs are not trees",
        "precision    100.0%   2 of 2 found",
        "recall        66.7%   2 of 3 wanted",
    ]
