import pytest

from xformc.trainer.evaluate import score_text


def test_score_text_is_sacrebleu_with_its_signature() -> None:
    score = score_text(["a small cat sat here", "no"], ["a small cat sat here", "yes"])
    assert 0 < score.bleu < 100
    assert score.exact == 0.5
    assert "tok:13a" in score.bleu_signature
    assert 0 < score.chrf < 100
    assert "nc:6" in score.chrf_signature
    assert score_text(["a b c d"], ["a b c d"]).bleu == pytest.approx(100)
