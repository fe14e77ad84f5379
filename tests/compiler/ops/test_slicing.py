"""Parts of an axis, sequences one after the other, shifted positions and pooling."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.concatenation import Concatenate, ShiftPositions
from xformc.compiler.ops.gathering import Reorder
from xformc.compiler.ops.pooling import Pool
from xformc.compiler.ops.slicing import Slice
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError

TOKENS = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0]])
WINDOWS = (("t",), ("u",), (3,), (2,), (1,), (1,))
CASES = {
    "slice": Case(Slice("t", "u", 2, step=3), (("a", "t", "d"),)),
    "slice without its end": Case(Slice("d", "u", 0, 3), (("a", "d"),)),
    "slice of a size": Case(Slice("d", "u", 1, 2), (("a", "d", "b"),)),
    "slice of the first": Case(Slice("t", "u", 1, step=2, count=3), (("a", "t", "d"),)),
    "slice of flags": Case(Slice("t", "u", 2, step=2, keep_first=True), (("a", "t"),), dtypes=("bool",)),
    "slice of ids": Case(Slice("t", "u", 1), (("a", "t"),), dtypes=("int64",)),
    "concatenate": Case(Concatenate("s", "t", "u"), (("a", "s", "d"), ("a", "t", "d"))),
    "concatenate in another order": Case(Concatenate("s", "t", "u"), (("a", "s", "d"), ("t", "d", "a"))),
    "concatenate slots": Case(Concatenate("h", "t", "u"), (("h", "d"), ("a", "b", "t", "d"))),
    "concatenate slots at the end": Case(Concatenate("t", "h", "u"), (("a", "t", "d"), ("h", "d"))),
    "roll": Case(Reorder("roll", "t", "t", 2), (("a", "t", "d"),)),
    "roll of a size": Case(Reorder("roll", "d", "d", -8), (("a", "d"),)),
    "reverse": Case(Reorder("reverse", "t", "t"), (("d", "t"),)),
    "the last three": Case(Reorder("last", "d", "u", 3), (("a", "d", "b"),)),
    "shift": Case(ShiftPositions("t", 2), (("a", "t", "d"),)),
    "shift back": Case(ShiftPositions("t", -3), (("t", "d"),)),
    "max": Case(Pool("max", *WINDOWS), (("a", "t", "d"), ("a", "t")), dtypes=("float32", "bool")),
    "mean": Case(Pool("mean", *WINDOWS), (("a", "t", "d"), ("a", "t")), dtypes=("float32", "bool")),
    "mean of the last axis": Case(Pool("mean", ("d",), ("u",), (2,), (2,), (0,), (1,)), (("d",),)),
    "max of a plane": Case(
        Pool("max", ("d", "v"), ("u", "w"), (2, 3), (2, 1), (0, 0), (1, 0)), (("a", "d", "b", "v"),)
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), {"d": 5, "v": 4})


PARTS = {
    "from the second on": "[slice: 1]",
    "up to the last": "[slice: {start: 1, stop: -1}]",
    "every second": "[slice: {step: 2}]",
    "the first three": "{short: {slice: {stop: 3}}, act: relu, again: {slice: {start: 1, step: 2}}}",
    "the same twice": "{other: relu, both: {concatenate: other}}",
    "with what is shorter": "{other: {slice: {start: 1, step: 2}}, both: {concatenate: {by: x, to_positions: both}}}",
    "after a vector": "[prepend: {weight: d_model}]",
    "before a vector": "[append: {weight: d_model}]",
    "after slots": "{slots: {prepend: {weight: [slots, d_model]}}, short: {slice: {step: 3}}}",
    "after slots and without": "{slots: {prepend: {weight: [slots, d_model]}}, out: {slice: 2}, sum: {plus: x}}",
    "the last three": "[slice: -3]",
    "the last nine": "{short: {slice: -9}, both: {concatenate: {by: x, to_positions: both}}}",
    "rolled": "[roll: 2]",
    "reversed": "{back: reverse, again: {roll: -1}}",
    "shifted": "[shift_positions: 2]",
    "shifted back": "[shift_positions: -1]",
    "pooled": "[pool: 3]",
    "pooled around": "[pool: {width: 3, stride: 2, function: mean, padding: same}]",
    "whole windows": "[pool: {width: 2, function: mean, padding: none}]",
    "pooled features": "{wide: {linear: wide}, "
    "thin: {pool: {width: 2, over: wide, function: mean, to_positions: d_model}}}",
}
READ = {
    "mean": "mean: mean",
    "attention": "placed: {add: sinusoid}, keys: as_keys, scores: {contract: {from: placed, by: keys, over: d_model}}, "
    "seen: mask, weights: {softmax: keys}, result: {contract: {by: keys, over: keys}}, most: max",
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("read", READ)
def test_padding_does_not_matter(tmp_path: Path, name: str, read: str) -> None:
    sizes = ("slots: 2" if "slots" in PARTS[name] else "") + ("wide: 12" if "wide" in PARTS[name] else "")
    steps = f"{{part: {{do: {PARTS[name]}}}, {READ[read]}}}"
    assert_padding_does_not_matter(tagging_graph(tmp_path, steps, sizes, task="classification"), tmp_path)


def values_of(folder: Path, steps: str, sizes: str = "") -> dict[str, torch.Tensor]:
    """The values of a text classifier with these steps, before a mean."""
    graph = tagging_graph(folder, f"{{part: {{do: {steps}}}, mean: mean}}", sizes, task="classification")
    return TorchModule(graph, seed=1).all_values(TOKENS)


def test_slice_keeps_one_position(tmp_path: Path) -> None:
    values = values_of(tmp_path, "[slice: 2]")
    lengths = values["text_less_2/mask"].sum(1).tolist()
    assert lengths == [5, 2, 1]
    torch.testing.assert_close(values["body/part"][0, :5], values["start"][0, 2:])
    assert not values["body/part"][2, 0].any()


def test_second_follows_the_real_positions_of_the_first(tmp_path: Path) -> None:
    values = values_of(tmp_path, "{short: {slice: {stop: 2}}, both: {concatenate: {from: x, by: short}}}")
    both, start = values["body/part/both"], values["start"]
    assert values["text_and_text_to_2/mask"].sum(1).tolist() == [9, 6, 2]
    torch.testing.assert_close(both[1, :6], torch.cat((start[1, :4], start[1, :2])))
    torch.testing.assert_close(both[2, :2], torch.stack((start[2, 0], start[2, 0])))


def test_order_is_that_of_the_real_positions(tmp_path: Path) -> None:
    values = values_of(tmp_path, "{back: reverse, rolled: {roll: {from: x, by: 1}}, sum: {plus: back}}")
    start, back, rolled = (values[name] for name in ("start", "body/part/back", "body/part/rolled"))
    torch.testing.assert_close(back[1], torch.cat((start[1, :4].flip(0), start[1, 4:])))
    torch.testing.assert_close(rolled[1], torch.cat((start[1, 3:4], start[1, :3], start[1, 4:])))


def test_slice_takes_the_last_positions(tmp_path: Path) -> None:
    values = values_of(tmp_path, "[slice: -3]")
    start, last = values["start"], values["body/part"]
    torch.testing.assert_close(last[1], start[1, 1:4])
    torch.testing.assert_close(last[2, 0], start[2, 0])
    assert values["text_to_3/mask"].sum(1).tolist() == [3, 3, 1]


def test_slots_come_first(tmp_path: Path) -> None:
    values = values_of(
        tmp_path, "{slots: {prepend: {weight: [slots, d_model]}}, end: {append: {weight: d_model}}}", "slots: 2"
    )
    slots, end = values["body/part/slots/weight"], values["body/part/end/weight"]
    found, start = values["body/part/end"], values["start"]
    torch.testing.assert_close(found[1, :7], torch.cat((slots, start[1, :4], end[None])))
    assert values["slots_and_text_and_end/mask"].sum(1).tolist() == [10, 7, 4]


def test_pooled_windows_ignore_padding(tmp_path: Path) -> None:
    values = values_of(tmp_path, "[pool: {width: 3, function: mean}]")
    start = values["start"]
    torch.testing.assert_close(values["body/part"][1, 1], start[1, 3])
    torch.testing.assert_close(values["body/part"][0, 1], start[0, 3:6].mean(0))
    assert values["text_by_3/mask"].sum(1).tolist() == [3, 2, 1]


def test_cut_is_the_inverse_of_join(tmp_path: Path) -> None:
    steps = (
        "{a: relu, both: {join: {by: x, to: wide}}, second: {cut: {axis: wide, into: [half, d_model], keep: d_model}}}"
    )
    values = values_of(tmp_path, steps.replace("d_model}}}", "d_model}}}"), "wide: 12, half: 6")
    torch.testing.assert_close(values["body/part/second"], values["start"])


STEPS = {
    "one": "[shift_positions: 1]",
    "three": "{shifted: {shift_positions: 3}, sum: {plus: x}}",
    "part of the features": "{a: {cut: {axis: d_model, into: [left, right], keep: right}}, out: {linear: d_model}}",
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    sizes = "left: 2, right: 4" if "right" in STEPS[name] else ""
    assert_steps_are_the_training_form(language_graph(tmp_path, STEPS[name], sizes), tmp_path)


NOT_CAUSAL = {
    "[slice: 1, mean]": "body/slice cannot be decoded step by step: text_less_1 has other positions than text, one for "
    "each token",
    "[prepend: {weight: d_model}, mean]": "body/weight cannot be decoded step by step: start_and_text has other "
    "positions than text, one for each token",
    "[shift_positions: -1, mean]": "body/shift_positions cannot be decoded step by step: every position "
    "sees one after it",
    "[roll: 1, mean]": "body/roll cannot be decoded step by step: a position sees one after it",
    "[pool: 2, mean]": "body/pool cannot be decoded step by step: a window holds several positions",
}


@pytest.mark.parametrize("steps", NOT_CAUSAL)
def test_what_is_not_causal_is_refused(tmp_path: Path, steps: str) -> None:
    graph = language_graph(tmp_path, f"{{part: {{do: {steps}}}, sum: {{plus: x}}}}")
    with pytest.raises(RuleError) as error:
        derive_step(graph, "text")
    assert error.value.message == NOT_CAUSAL[steps].replace("body/", "body/part/")
    assert error.value.hint is not None
    assert ":6:" in str(error.value.place)


REFUSED = {
    "[slice: 1.5]": "'start' must be a whole number, found 1.5",
    "[slice: {stop: 100000}]": "'stop' must be at most 65,536, found 100000",
    "[slice: {step: 0}]": "'step' must be at least 1, found 0",
    "[roll: 0.5]": "'by' must be a whole number, found 0.5",
    "[slice: {start: -2, step: 2}]": "the size of text is known only at run time, so the slice cannot start at its end",
    "[slice: {start: 2, stop: 1}]": "there are no positions from 2 to 1",
    "[slice: {start: 6, over: d_model}]": "the axis d_model=6 has no elements from 6 to 6",
    "[slice: {start: 1, to_positions: text}]": "there is already an axis text",
    "[slice: {start: 1, over: d_model, to_positions: d_model}]": "there is already an axis d_model",
    "{a: {slice: {start: 1, to_positions: part}}, b: {concatenate: {from: x, by: x, to_positions: part}}}": "there is "
    "already an axis part",
    "{a: {concatenate: {by: x, to_positions: both}}, b: {concatenate: {by: x, to_positions: both}}}": "the axis both "
    "is already concatenated from others",
    "{a: mean, b: {concatenate: {from: x, by: a}}}": "needs a value with one axis of positions, found body/a: "
    "float32[batch, d_model=6]",
    "[prepend: {weight: [labels, vocabulary, d_model]}]": "needs a value with one axis that float32[batch, text, "
    "d_model=6] has not, found body/weight: float32[labels=3, vocabulary=20, d_model=6]",
    "[prepend: {weight: vocabulary}]": "needs a value along d_model=6, found body/weight: float32[vocabulary=20]",
    "[shift_positions: 0]": "'by' must be a whole number that is not 0, found 0",
    "[pool: {width: 2, function: sum}]": "'function' must be max or mean, found 'sum'",
    "[pool: {width: 2, padding: valid}]": "'padding' must be end, same or none, found 'valid'",
    "[pool: {width: 2000}]": "a window must have at most 1,024 elements, found 2000",
    "[cut: {axis: d_model, into: [labels, vocabulary], keep: labels}]": "the axis d_model=6 cannot be cut into "
    "labels=3, vocabulary=20",
    "[cut: {axis: d_model, into: d_model, keep: labels}]": "'keep' must be one of the parts, found labels",
    "[cut: {axis: positions, into: d_model, keep: d_model}]": "text holds positions",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_steps_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        tagging_graph(tmp_path, steps, task="classification")
    (problem,) = error.value.problems
    assert (problem.message, problem.span.line) == (REFUSED[steps], 6)


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(RuleError, match="d=2 has too few elements"):
        one_op(Case(Slice("d", "u", 2), (("d",),)), {"d": 2})
    with pytest.raises(RuleError, match=r"the mask must be bool\[batch, s\]"):
        one_op(Case(Concatenate("s", "t", "u"), (("a", "s"), ("a", "t"), ("a", "t"))), {"a": 1, "s": 1, "t": 1})
