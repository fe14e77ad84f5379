import pytest

from xformc.compiler.spec.sections import Schedule
from xformc.trainer.schedule import learning_rate, rate_factor, schedule_of


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


def rates(steps: int, **settings: object) -> list[float]:
    schedule = Schedule.model_validate({"peak": 0.5, "warmup_steps": 4, **settings})
    rate = schedule_of(schedule, {}, steps)
    return [rate(step) for step in range(1, steps + 3)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "constant"}, [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
        ({"kind": "linear"}, [0.125, 0.25, 0.375, 0.5, 0.375, 0.25, 0.125, 0.0, 0.0, 0.0]),
        ({"kind": "linear", "final": 0.5}, [0.125, 0.25, 0.375, 0.5, 0.4375, 0.375, 0.3125, 0.25, 0.25, 0.25]),
        ({"kind": "warmup_stable_decay", "decay_steps": 2}, [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.25, 0.0, 0.0, 0.0]),
        ({"kind": "cosine", "warmup_steps": 0, "peak": 1.0}, [0.962, 0.854, 0.691, 0.5, 0.309, 0.146, 0.038, 0, 0, 0]),
    ],
)
def test_schedules_rise_to_the_peak_and_fall_as_they_say(settings: dict[str, object], expected: list[float]) -> None:
    assert rates(8, **settings) == pytest.approx(expected, abs=1e-3)


def test_default_schedule_is_that_of_the_paper() -> None:
    rate = schedule_of(Schedule(), {"d_model": 512}, 100)
    assert rate(7) == learning_rate(7, factor=512**-0.5, warmup_steps=4000)
