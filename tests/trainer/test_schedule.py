import pytest

from xformc.trainer.schedule import learning_rate


def test_learning_rate_is_that_of_the_paper() -> None:
    assert learning_rate(1, d_model=512, warmup_steps=4000) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert learning_rate(4000, d_model=512, warmup_steps=4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert learning_rate(100_000, d_model=512, warmup_steps=4000) == pytest.approx(512**-0.5 * 1e5**-0.5)


def test_learning_rate_peaks_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(step, d_model=64, warmup_steps=10) for step in range(1, 30)]
    assert max(rates) == rates[9]
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_learning_rate_scales_and_can_start_high() -> None:
    assert learning_rate(1, d_model=4, warmup_steps=0, scale=2.0) == 1.0


def test_learning_rate_decays_to_nothing() -> None:
    rates = [learning_rate(step, d_model=64, warmup_steps=10, decay_steps=40) for step in range(1, 51)]
    plain = [learning_rate(step, d_model=64, warmup_steps=10) for step in range(1, 51)]
    assert rates[19] == plain[19] / 2
    assert rates[39:] == [0.0] * 11
    assert rates[9:40] == sorted(rates[9:40], reverse=True)
