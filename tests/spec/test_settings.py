"""Settings over a spec: they replace what the file says, and mistakes in them have a place."""

from pathlib import Path

import pytest

from xformc.compiler.spec import SpecError, load_spec
from xformc.compiler.spec.settings import settings_of
from xformc.errors import UserError
from xformc.specs import find_shipped

BASE = find_shipped("transformer_base")


def test_settings_replace_sizes_sections_and_choices() -> None:
    spec = load_spec(BASE, ["sizes.layers=2", "train.schedule.warmup_steps=10", "decode={beam_size: 2}", "name=mine"])
    assert (spec.name, spec.sizes["layers"], spec.train.schedule.warmup_steps, spec.decode.beam_size) == (
        *("mine", 2, 10, 2),
    )
    assert spec.train.steps == load_spec(BASE).train.steps


def test_a_setting_makes_the_sections_that_it_needs() -> None:
    assert load_spec(BASE, ["precision.encoder/0=int8"]).precision == {"encoder/0": "int8"}


def test_the_last_of_equal_settings_counts() -> None:
    assert load_spec(BASE, ["sizes.layers=2", "sizes.layers=3"]).sizes["layers"] == 3


def test_a_setting_is_kept_in_the_resolved_spec(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(load_spec(BASE, ["sizes.layers=2"]).resolved_yaml(), encoding="utf-8")
    assert load_spec(path).sizes["layers"] == 2


def test_peak_may_be_set_over_a_scale(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("extends: transformer_base\ntrain: {schedule: {scale: 2.0}}\n")
    assert load_spec(path, ["train.schedule.peak=0.001"]).train.schedule.peak == 0.001


def test_python_values_are_settings() -> None:
    values = {
        "sizes.layers": 2,
        "train.minutes": None,
        "train.tokenizer": {"kind": "char"},
        "train.schedule.peak": 1e-5,
    }
    spec = load_spec(BASE, settings_of(values))
    assert (spec.sizes["layers"], spec.train.minutes, spec.train.tokenizer.kind) == (2, None, "char")
    assert spec.train.schedule.peak == 1e-5
    with pytest.raises(UserError, match="a setting cannot be written as YAML"):
        settings_of({"sizes.layers": {1, 2}})


@pytest.mark.parametrize("setting", ["layers", "=2", "sizes..layers=2", "sizes.=2", "a b=2", ".=1"])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=r"is not a setting\nhint: write --set PATH=VALUE"):
        load_spec(BASE, [setting])


@pytest.mark.parametrize(
    ("setting", "column", "message"),
    [
        ("sizes.layers=[", 16, "not YAML"),
        ("train.steps=many", 14, "must be a whole number"),
        ("sizes.layer=2", 1, "the size 'layer' is not used by anything"),
        ("sizes.layers.x=2", 1, "there is no 'x' to set: a mapping is needed there, found 6"),
        ("trian.steps=2", 1, "'trian'"),
        ("precision.encodre=int8", 1, "is under 'encodre'"),
    ],
)
def test_a_mistake_in_a_setting_is_shown_in_it(setting: str, column: int, message: str) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(BASE, [setting]).graph()
    (problem,) = error.value.problems
    assert message in problem.message
    assert problem.span.place == f"--set {setting.partition('=')[0]}:1:{column}"
