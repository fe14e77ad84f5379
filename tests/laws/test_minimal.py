"""The smallest specs that have broken a law: each stays right."""

from pathlib import Path

import pytest
from steps import assert_steps_are_the_training_form, language_graph

SIZES = "heads: 2, d_k: 3, window: 3"
STEPS = {
    "a sum over the keys of a window": "{keys: {as_keys: {window: window}}, "
    "scores: {contract: {from: x, by: keys, over: d_model}}, seen: {mask: {causal: true}}, positive: exp, "
    "total: {sum: {over: keys}}, output: {times: {by: x}}}"
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    sizes = ", ".join(item for item in SIZES.split(", ") if item.split(":")[0] in STEPS[name])
    assert_steps_are_the_training_form(language_graph(tmp_path, STEPS[name], sizes), tmp_path)
