"""Top, take, one-hot and the linear maps of experts: the same in PyTorch and ONNX Runtime, and in steps."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.expert_linear import ExpertLinear
from xformc.compiler.ops.indexing import OneHot, Take, Top
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import SpecError, load_spec

CASES = {
    "top": (Case(Top("d", "z", 2), (("a", "d", "b"),)), {"d": 4}),
    "take of a table": (Case(Take("d"), (("d", "v"), ("a", "b")), dtypes=("float32", "int64")), {"d": 3}),
    "take in each row": (
        Case(Take("d"), (("b", "v", "d", "a"), ("a", "c", "b")), dtypes=("float32", "int64")),
        {"d": 5},
    ),
    "take one of each": (Case(Take("d"), (("a", "d"), ("a",)), dtypes=("float32", "int64")), {"d": 2}),
    "one_hot": (Case(OneHot("z", 3), (("a", "b"),), dtypes=("int64",)), {}),
    "experts": (
        Case(
            ExpertLinear(("d",), 3, True),
            (("a", "d"), ("a", "c")),
            (("o", "d"),) * 3 + (("o",),) * 3,
            ("float32", "int64"),
        ),
        {},
    ),
    "experts of every row": (
        Case(
            ExpertLinear(("h", "d"), 2, False),
            (("a", "h", "c", "d"), ("c",)),
            (("o", "v", "h", "d"),) * 2,
            ("float32", "int64"),
        ),
        {},
    ),
    "one expert": (
        Case(ExpertLinear(("d",), 1, False), (("a", "d"), ("b", "a")), (("o", "d"),), ("float32", "int64")),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_op_is_the_same_everywhere(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    case, sizes = CASES[name]
    assert_same_everywhere(case, data, tmp_path_factory.mktemp("op"), sizes)


def test_of_equal_numbers_the_first_is_first() -> None:
    module = TorchModule(one_op(Case(Top("d", "z", 3), (("d",),)), {"d": 4}))
    assert module(torch.tensor([1.0, 3.0, 2.0, 3.0])).tolist() == [1, 3, 2]


def test_indices_beyond_the_ends_count_as_the_first_or_the_last() -> None:
    module = TorchModule(one_op(Case(Take("d"), (("d",), ("a",)), dtypes=("float32", "int64")), {"d": 3}))
    assert module(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-5, 0, 7])).tolist() == [1.0, 1.0, 3.0]


def test_a_row_is_computed_by_its_expert() -> None:
    case = Case(ExpertLinear(("d",), 3, True), (("a", "d"), ("a", "c")), (("o", "d"),) * 3 + (("o",),) * 3)
    graph = one_op(Case(case.op, case.inputs, case.parameters, ("float32", "int64")), {"d": 4, "o": 5})
    module = TorchModule(graph, seed=2)
    x, index = torch.randn(6, 4), torch.tensor([[0, 2], [2, 0], [0, 0], [2, 2], [0, 2], [2, 0]])
    weights = [module.get_parameter(f"p.{number}") for number in range(6)]
    expected = torch.stack(
        [torch.stack([row @ weights[e].T + weights[3 + e] for e in own]) for row, own in zip(x, index, strict=True)]
    )
    found = module(x, index)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    grads = [weight.grad for weight in weights]
    assert all(grad is not None for grad in grads)
    assert grads[1] is not None and not grads[1].any(), "no row chose expert 1"


STEPS = {
    "experts": "{scores: {linear: experts}, best: {top: {over: experts, to: chosen}}, "
    "kept: {take: {from: scores, by: best, over: experts}}, share: {softmax: chosen}, "
    "inner: {expert_linear: {from: x, by: best, experts: experts, to: d_ff}}, active: relu, "
    "outer: {expert_linear: {by: best, experts: experts, to: d_model, bias: false}}, weighted: {times: share}, "
    "result: {sum: {over: chosen}}}",
    "an embedding of an index": "{scores: {linear: buckets}, best: {argmax: buckets}, "
    "vector: {embedding: {size: d_model, entries: buckets}}, sum: {plus: x}}",
    "a one-hot index": "{scores: {linear: buckets}, best: {top: {over: buckets, to: chosen}}, hot: {one_hot: buckets}, "
    "sum: {sum: {over: chosen}}, output: {linear: {to: d_model}}}",
    "scores of the best": "{scores: {linear: buckets}, best: {top: {over: buckets, to: chosen}}, "
    "kept: {take: {from: scores, by: best, over: buckets}}, output: {linear: {to: d_model}}}",
}
SIZES = {"buckets": 5, "chosen": 2, "experts": 4, "d_ff": 10}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    sizes = ", ".join(f"{size}: {number}" for size, number in SIZES.items() if size in STEPS[name])
    assert_steps_are_the_training_form(language_graph(tmp_path, STEPS[name], sizes), tmp_path)


MISTAKES = {
    "[top: {over: d_model, to: seven}]": "the axis d_model=6 of .* has fewer than 7|has fewer than 7 elements",
    "{best: {top: {over: text, to: seven}}, other: {linear: {from: x, to: seven}}}": "the size of the axis text",
    "{kept: {take: {by: x, over: d_model}}, other: {linear: {from: x, to: seven}}}": "needs int64 indices",
    "{best: {argmax: d_model}, vector: {embedding: seven}}": "needs an input of tokens",
    "{best: {one_hot: seven}}": "one_hot needs tokens",
    "{best: {expert_linear: {by: x, experts: seven, to: d_model}}}": "needs int64 indices",
}


@pytest.mark.parametrize("steps", MISTAKES)
def test_mistakes_are_refused_with_their_place(tmp_path: Path, steps: str) -> None:
    with pytest.raises((SpecError, RuleError), match=MISTAKES[steps]) as error:
        language_graph(tmp_path, steps, "seven: 7")
    assert "model.yaml:" in str(error.value)


def test_there_are_at_most_1024_experts(tmp_path: Path) -> None:
    steps = "{best: {argmax: d_model}, out: {expert_linear: {from: x, by: best, experts: many, to: d_model}}}"
    with pytest.raises(SpecError, match="at most 1,024 experts, found 1,025"):
        language_graph(tmp_path, steps, "many: 1025")


BALANCED = """\
extends: gpt
sizes: {layers: 1, d_model: 8, d_ff: 6, heads: 2, vocabulary: 20, experts: 4, chosen: 2, max_positions: 24}
blocks:
  feed_forward: {doc: Experts., do: [sparse_experts: {balance: 0.5}]}
train: {max_length: 16}
"""


@pytest.mark.parametrize("router", ["", "choices: {router: softmax_first}\n"])
def test_the_balance_of_experts_is_a_loss(tmp_path: Path, router: str) -> None:
    """The number of experts times the sum of fractions times mean probabilities, for each sequence without padding."""
    path = tmp_path / "model.yaml"
    path.write_text(BALANCED + router)
    graph = compile_training(load_spec(path)).graph
    module = TorchModule(graph, seed=1).train()
    tokens = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])
    values = module.all_values(tokens, tokens)
    (scores,) = (values[name] for name in values if name.endswith("feed_forward/scores"))
    (indices,) = (values[name] for name in values if name.endswith("feed_forward/indices"))
    expected = []
    for row, length in enumerate([4, 2]):
        probability = scores[row, :length].softmax(-1).mean(0)
        fraction = torch.nn.functional.one_hot(indices[row, :length], 4).float().mean((0, 1))
        expected.append(4 * (probability * fraction).sum())
    (found,) = (values[name] for name in values if name.endswith("balanced/loss"))
    torch.testing.assert_close(found, torch.stack(expected))
    found.sum().backward()
    (gate,) = (
        parameter for name, parameter in module.named_parameters() if name.endswith("feed_forward.scores.weight")
    )
    assert gate.grad is not None and gate.grad.any()
