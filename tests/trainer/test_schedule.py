import pytest

from xformc.compiler.spec.sections import Schedule
from xformc.trainer.schedule import learning_rate, rate_factor


def test_learning_rate_is_that_of_the_paper() -> None:
    factor = rate_factor(Schedule(), {"d_model": 512})
    assert learning_rate(1, factor=factor, warmup_steps=4000) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert learning_rate(4000, factor=factor, warmup_steps=4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert learning_rate(100_000, factor=factor, warmup_steps=4000) == pytest.approx(512**-0.5 * 1e5**-0.5)


def test_learning_rate_peaks_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(step, factor=0.125, warmup_steps=10) for step in range(1, 30)]
    assert max(rates) == rates[9]
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_learning_rate_scales_and_can_start_high() -> None:
    factor = rate_factor(Schedule(scale=2.0, width="d"), {"d": 4})
    assert learning_rate(1, factor=factor, warmup_steps=0) == 1.0


@pytest.mark.parametrize("warmup_steps", [0, 1, 10, 4000])
def test_learning_rate_has_its_peak_after_the_warm_up(warmup_steps: int) -> None:
    factor = rate_factor(Schedule(peak=7e-4, warmup_steps=warmup_steps), {})
    last = max(1, warmup_steps)
    rates = [learning_rate(step, factor=factor, warmup_steps=warmup_steps) for step in range(1, last + 5)]
    assert max(rates) == rates[last - 1] == pytest.approx(7e-4)


def test_learning_rate_decays_to_nothing() -> None:
    rates = [learning_rate(step, factor=0.125, warmup_steps=10, decay_steps=40) for step in range(1, 51)]
    plain = [learning_rate(step, factor=0.125, warmup_steps=10) for step in range(1, 51)]
    assert rates[19] == plain[19] / 2
    assert rates[39:] == [0.0] * 11
    assert rates[9:40] == sorted(rates[9:40], reverse=True)
