"""A decoder is derived only if later positions have no effect, whatever is done to the scores."""

from pathlib import Path

import numpy as np
from hypothesis import assume, event, given
from hypothesis import strategies as st
from laws.building_blocks import HEADS, body
from laws.models import assert_causal, assert_close, make_model
from laws.settings import examples
from laws.specs import Sample, Step
from steps import run_steps, torch_run

from xformc.compiler.certify.causal import first_dependent
from xformc.compiler.certify.forward import BOUND
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.passes.step import derive_step

LARGEST = 1e4
"""Of results that are compared; among larger ones small differences do not show."""

HIDING: list[Step] = [{"mask": {"causal": True}}, {"mask": {"causal": True, "edges": "same"}}]
CHANGES: list[Step] = [
    {"softmax": "keys"},
    "relu",
    "exp",
    "sigmoid",
    "tanh",
    "elu",
    "gelu",
    {"scale": 2},
    {"scale": 0.01},
    {"scale": -1},
    {"scale": 0},
    {"shift": 1},
    {"shift": 1.0e6},
    {"dropout": 0.1},
    "zero_padding",
    *HIDING,
    {"mask": {"causal": False}},
    {"mask": {"edges": "same"}},
    {"plus": {"by": "scores"}},
    {"times": {"by": "scores"}},
    {"divide": {"by": "rows"}},
    {"plus": {"by": "rows"}},
    {"softmax": "heads"},
    {"softmax": "positions"},
    {"alibi": "heads"},
    {"relative_bias": {"heads": "heads", "buckets": "buckets", "max_distance": "max_distance", "causal": True}},
    {"linear": {"over": "heads", "to": "heads"}},
    {"linear": {"over": "heads", "to": "heads", "bias": False}},
    {"scale": 0.5},
    {"keep_top": {"count": 2, "over": "keys"}},
    {"keep_top": {"count": 1, "over": "heads"}},
    body(less={"scale": -1}, both={"plus": {"by": "x"}}),
    body(less={"scale": -1}, grown="exp", both={"times": {"by": "x"}}),
    body(top={"keep_top": {"count": 1, "over": "heads"}}, less={"scale": -2}, both={"plus": {"by": "x"}}),
    body(share={"softmax": "heads"}, both={"divide": {"from": "x", "by": "share"}}),
    body(rest="relu", share={"divide": {"from": "x", "by": "rest"}}),
    body(total={"sum": {"over": "keys"}}, more={"shift": 1}, share={"divide": {"from": "x", "by": "more"}}),
    body(total={"max": {"over": "keys"}}, less={"scale": -1}, share={"plus": {"from": "x", "by": "less"}}),
]
ENDS: list[Step] = [
    {"contract": {"by": "values", "over": "keys"}},
    {"contract": {"from": "values", "by": "changed", "over": "keys"}},
    body(total={"sum": {"over": "keys"}}, spread={"times": {"by": "entrance"}}),
    body(total={"max": {"over": "keys"}}, spread={"times": {"by": "entrance"}}),
    body(total={"mean": {"over": "keys"}}, spread={"times": {"by": "entrance"}}),
    body(total={"last": {"over": "keys"}}, spread={"times": {"by": "entrance"}}),
    body(total={"first": {"over": "keys"}}, spread={"times": {"by": "entrance"}}),
]


@st.composite
def models(draw: st.DrawFn) -> Sample:
    """A language model with scores to which anything may be done before and after they are masked."""
    few = st.lists(st.sampled_from(CHANGES), max_size=2)
    normal = draw(st.sampled_from([[step] for step in CHANGES[:4]] + [[]]))
    changes = [*draw(few), draw(st.sampled_from(HIDING)), *draw(few), *normal, *draw(few)]
    window = draw(st.sampled_from([{}, {"window": "window"}]))
    end = draw(st.sampled_from(ENDS))
    used = str([changes, end])
    steps: dict[str, Step] = {"normal": "layer_norm", "query": {"linear": HEADS}}
    if "rows" in used:
        steps["rows"] = body(rows={"linear": {"from": "normal", "to": "heads"}}, weights="sigmoid")
    if "same" in used:
        steps["mine"] = body(scores={"linear": {"from": "normal", "to": "d_ff"}}, best={"argmax": "d_ff"})
        steps["its"] = body(scores={"linear": {"from": "normal", "to": "d_ff"}}, best={"argmax": "d_ff"})
        steps["seen"] = {"as_keys": window}
        steps["same"] = {"equal": {"from": "mine", "by": "seen"}}
    if "values" in used:
        steps |= {"value": {"linear": {"from": "normal", "to": ["heads", "d_v"]}}, "values": {"as_keys": window}}
    else:
        steps["entrance"] = {"weight": {"from": "x", "axes": ["heads", "d_v"]}}
    steps |= {"key": {"linear": {"from": "normal", "to": HEADS}}, "keys": {"as_keys": window}}
    steps["scores"] = {"contract": {"from": "query", "by": "keys", "over": "d_k"}}
    steps |= {f"change_{index}": change for index, change in enumerate(changes[:-1])} | {"changed": changes[-1]}
    steps |= {"mixed": end, "output": {"linear": {"over": ["heads", "d_v"], "to": "d_model"}}}
    return Sample("language_model", [{"do": steps}])


@examples(60)
@given(models())
def test_what_is_derived_is_causal(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    try:
        decoder = derive_step(model.graph, sample.time)
    except RuleError as error:
        assert error.place is not None
        event("refused")
        return
    (tokens,) = model.inputs()
    expected, tolerance = model.known([tokens])
    assume(np.abs(expected).max() < LARGEST)
    event("derived")
    assert_causal(model.run, [tokens], expected, tolerance)
    assert first_dependent(model.module, sample.time, {sample.time: tokens}, BOUND)[1] is None
    found = run_steps(decoder, torch_run, model.module, tokens, tmp_path)
    assert_close(found, expected, tolerance)


@examples(30)
@given(models(), st.booleans())
def test_what_is_not_causal_has_a_first_value_that_is_not(tmp_path: Path, sample: Sample, gated: bool) -> None:
    model = make_model(sample, tmp_path)
    if gated:
        arrays = model.module.arrays()
        gate = next(name for name in arrays if name.endswith("output/weight"))
        model.module.load_arrays({**arrays, gate: 0 * arrays[gate]})
    (tokens,) = model.inputs()
    expected, tolerance = model.known([tokens])
    node = first_dependent(model.module, sample.time, {sample.time: tokens}, BOUND)[1]
    if node is None:
        event("causal")
        assert_causal(model.run, [tokens], expected, tolerance)
    else:
        event("not causal")
        assert node.place is not None
