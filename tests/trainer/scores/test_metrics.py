import numpy as np
import pytest
import sacrebleu

from xformc.trainer.scores.metrics import Measure, label_measures, likelihood_measures, make_bleu, translation_measures


def by_key(measures: list[Measure]) -> dict[str, Measure]:
    return {measure.key: measure for measure in measures}


def test_translation_measures_are_sacrebleus_with_their_signatures() -> None:
    outputs, reference = ["a small cat sat here", "no"], ["a small cat sat here", "yes"]
    found = by_key(translation_measures(outputs, [reference], make_bleu()))
    assert list(found) == ["chrf", "exact_match", "bleu"]
    assert found["exact_match"].value == 0.5
    assert found["exact_match"].line() == "exact match   50.0%   1 of 2 sentences"
    assert found["bleu"].value == sacrebleu.corpus_bleu(outputs, [reference]).score
    assert found["chrf"].value == sacrebleu.corpus_chrf(outputs, [reference]).score
    assert found["bleu"].line().startswith("BLEU          95.54   nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert found["chrf"].json() == {"score": found["chrf"].value, "signature": found["chrf"].signature}


def test_translation_measures_take_any_of_several_references() -> None:
    found = by_key(translation_measures(["a", "b"], [["a", "x"], ["y", "b"]], make_bleu()))
    assert found["exact_match"].value == 1
    assert "nrefs:2" in (found["chrf"].signature or "")


def test_translation_measures_skip_bleu_of_short_sentences() -> None:
    found = by_key(translation_measures(["a b c", "d"], [["a b c", "d"]], make_bleu()))
    assert found["bleu"].value is None and found["bleu"].json() is None
    assert found["bleu"].line() == "BLEU          skipped: every reference is shorter than 4 words"
    assert by_key(translation_measures(["a"], [["ein Satz, hier"]], make_bleu()))["bleu"].value is not None


def test_label_measures_are_accuracy_and_macro_f1() -> None:
    wanted, found = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    accuracy, macro = label_measures(found, wanted, 4, "tokens")
    assert accuracy.value == 3 / 5
    assert accuracy.line() == "accuracy      60.0%   3 of 5 tokens"
    assert macro.value == pytest.approx((0.5 + 0.8 + 0.0) / 3)
    assert macro.note == "mean over 3 labels"
    assert [measure.key for measure in label_measures(found, wanted, 100, "tokens")] == ["accuracy"]


def test_label_measures_have_the_macro_f1_of_sklearn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    wanted, found = random.integers(0, 9, 200), random.integers(0, 9, 200)
    _, macro = label_measures(found, wanted, 12, "texts")
    assert macro.value == pytest.approx(metrics.f1_score(wanted, found, average="macro"))


def test_likelihood_measures_say_what_computed_them() -> None:
    perplexity, bits = likelihood_measures(1234 * np.log(16.0), 1234, 2468, "by the engine")
    assert perplexity.value == pytest.approx(16) and bits.value == pytest.approx(2)
    assert (
        perplexity.line()
        == "perplexity    16.00   per token, over 1,234 tokens with end tokens; computed by the engine"
    )
    assert bits.line() == "bits per byte   2.00   over 2,468 bytes of text without line ends"
    assert likelihood_measures(3.0, 2, 0, "")[1].line() == "bits per byte  skipped: the texts are empty"
