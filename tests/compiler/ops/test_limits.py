"""The longest input that a table of positions allows, through axes that are made of it."""

from pathlib import Path

import pytest

from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec

SPEC = """\
task: classification
sizes: {d_model: 8, vocabulary: 20, limit: 300, labels: 3}
inputs: {text: {tokens: vocabulary}}
model:
  states:
    from: text
    do:
      words: {embedding: d_model}
      more: {prepend: {weight: d_model}}
      places: {learned_positions: limit}
      both: {plus: {from: more, by: places}}
      back: {slice: {start: 1}}
      whole: mean
  logits: {from: states, do: [linear: labels]}
train: {max_length: 64}
"""


@pytest.mark.parametrize("sliced", ["{slice: {start: 1}}", "tanh"])
def test_a_slice_that_gives_an_earlier_axis_back_makes_no_circle(tmp_path: Path, sliced: str) -> None:
    (tmp_path / "model.yaml").write_text(SPEC.replace("{slice: {start: 1}}", sliced))
    program = compile_engine(load_spec(tmp_path / "model.yaml"))
    assert program.inputs["text"].longest == 299
