"""Fixed caches: their entries as keys of a beam, the mask of ancestors, and writing single entries."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere

from tests.small_specs import small
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.graph.axes import DType
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.keys import BeamKeys, Write
from xformc.compiler.ops.masks import Reached
from xformc.compiler.passes.step import Decoder
from xformc.compiler.pipeline import compile_engine, run_passes
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.precision import Precision

FLOATS = ("float32", "float32")
CASES = {
    "keys of a beam": Case(BeamKeys("m", "r", "k"), (("a", "d", "r", "m", "v"), ("m",)), dtypes=("float32", "int64")),
    "keys that a beam shares": Case(BeamKeys("m", "r", "k"), (("r", "v"), ("m",)), dtypes=("float32", "int64")),
    "positions of a beam": Case(BeamKeys("m", "r", "k"), (("r",), ("m",)), dtypes=("int64", "int64")),
    "entries that are seen": Case(
        Reached("k"), (("r",), (), ("a", "m", "r"), ("m",)), dtypes=("int64", "int64", "int64", "int64")
    ),
    "the last entries that are seen": Case(
        Reached("k", 2), (("r",), (), ("a", "m", "r"), ("m",)), dtypes=("int64", "int64", "int64", "int64")
    ),
    "an entry in another order": Case(
        Write("h", "r"),
        (("a", "d", "m", "r"), ("m", "a", "h", "d"), ("r",), ()),
        dtypes=("float32", "float32", "int64", "int64"),
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), {"d": 5, "v": 4, "h": 1})


def decoder(name: str, precision: Precision) -> Decoder:
    spec = small(name)
    return run_passes(compile_engine(spec, "cuda", spec.precisions(precision))).decoder


DTYPES: Mapping[Precision, DType] = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "float32",
    "int8": "float32",
}
"""How keys and values are stored beside weights of each precision."""


@pytest.mark.parametrize("name", ["transformer_base", "t5", "local_attention", "positions/alibi"])
def test_caches_of_a_beam_stay_and_are_narrow_beside_narrow_products(name: str) -> None:
    for precision, dtype in DTYPES.items():
        made = decoder(name, precision)
        assert made.lineage is not None
        caches = [state.past for state in made.states if state.past.name in made.lineage.caches]
        assert caches and {value.type.dtype for value in caches} == {dtype}
        assert all(value.type.names[-3:-1] == ("room", "beam") for value in caches)


def test_states_of_a_recurrence_move_with_their_hypotheses() -> None:
    made = decoder("seq2seq_attention", "float16")
    assert made.lineage is None and all(state.past.type.names[:2] == ("batch", "beam") for state in made.states)


OWN = """
task: translation
sizes: {d_model: 16, vocabulary: 40, d_k: 4}
inputs:
  source: {tokens: vocabulary}
  target: {tokens: vocabulary}
model:
  encoder: {from: source, do: [embedding: d_model]}
  pooled: {from: encoder, do: [mean]}
  decoder:
    from: target
    do:
      - embedding: d_model
      - own
  both: {from: decoder, do: [plus: {by: pooled}]}
  logits: {from: both, do: [linear: vocabulary]}
decode: {beam_size: 4}
blocks:
  own:
    do:
"""
TIES = f"""{OWN}
      query: {{linear: {{from: x, to: d_k}}}}
      key: {{linear: {{from: x, to: d_k}}}}
      keys: as_keys
      values: {{as_keys: {{from: x}}}}
      scores: {{contract: {{from: query, by: keys, over: d_k}}}}
      flat: {{scale: 0}}
      seen: {{mask: {{from: flat, causal: true}}}}
      best: {{keep_top: {{count: 2, over: keys}}}}
      weights: {{softmax: keys}}
      mixed: {{contract: {{from: weights, by: values, over: keys}}}}
      y: {{plus: {{from: x, by: mixed}}}}
"""
BATCH_BEHIND = f"""{OWN}
      angle: sinusoid
      product: {{contract: {{from: angle, by: x, over: d_model}}}}
      total: cumulative_sum
      bounded: {{sigmoid: {{from: total}}}}
      y: {{times: {{from: x, by: bounded}}}}
"""
MEMORY_AS_RESULT = """
sizes: {d_model: 16, vocabulary: 40}
inputs:
  source: {tokens: vocabulary}
  target: {tokens: vocabulary}
results:
  target: {text: logits}
  extra: {numbers: memory}
model:
  encoder: {from: source, do: [embedding: d_model]}
  memory: {from: encoder, do: [linear: d_model]}
  other: {from: encoder, do: [linear: d_model]}
  decoder:
    from: target
    do:
      - embedding: d_model
      - own: {memory: memory, other: other}
  logits: {from: decoder, do: [linear: vocabulary]}
blocks:
  own:
    takes: {memory: value, other: value}
    do:
      query: {linear: {from: x, to: [d_model]}}
      scores: {contract: {from: query, by: memory, over: d_model}}
      scaled: {scale: 1 / sqrt(d_model)}
      weights: {softmax: source}
      mixed: {contract: {from: weights, by: other, over: source}}
decode: {beam_size: 4}
"""


def read(folder: Path, document: str) -> Spec:
    (folder / "own.yaml").write_text(document, encoding="utf-8")
    return load_spec(folder / "own.yaml")


def test_of_equal_scores_the_earliest_keys_are_kept(tmp_path: Path) -> None:
    assert build_engine(read(tmp_path, TIES), None, None, "cuda", tmp_path / "engine").passed


def test_what_is_a_result_and_a_key_is_kept_in_float32(tmp_path: Path) -> None:
    spec = read(tmp_path, MEMORY_AS_RESULT)
    assert build_engine(spec, None, None, "cuda", tmp_path / "engine", rounding=Rounding("float16")).passed


def test_a_state_that_moves_must_begin_with_the_batch(tmp_path: Path) -> None:
    spec = read(tmp_path, BATCH_BEHIND.replace(", d_k: 4", ""))
    with pytest.raises(RuleError, match="must have the axis batch first for beam search"):
        run_passes(compile_engine(spec, "cuda"))


@pytest.mark.parametrize("name", ["cache_0", "lineage_ancestors", "places"])
def test_an_input_cannot_be_called_as_a_value_of_the_search(name: str, tmp_path: Path) -> None:
    declared = TIES.replace("task: translation", "results: {target: {text: logits}}")
    spec = read(tmp_path, re.sub(r"\bsource\b", name, declared))
    with pytest.raises(UserError, match=f"the input '{name}' has the name of a value of the search"):
        build_engine(spec, None, None, "cuda", tmp_path / "engine")
