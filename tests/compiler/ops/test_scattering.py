"""Scatter adds the same everywhere, in order, in steps and beside padding; and a model learns to copy by it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op, run_onnx
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.scattering import Scatter
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import derive_step
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import SpecError, load_spec

DTYPES = ("float32", "int64")
CASES = {
    "the same indices for all": (Case(Scatter("b", "z", 4), (("a", "b"), ("b",)), dtypes=DTYPES), {}),
    "indices beyond the axis": (Case(Scatter("b", "z", 2), (("a", "b"), ("a", "b")), dtypes=DTYPES), {}),
    "axes in another order": (Case(Scatter("b", "z", 5), (("b", "c", "d"), ("d", "a", "b")), dtypes=DTYPES), {}),
    "no other axis": (Case(Scatter("d", "z", 3), (("d",), ("d",)), dtypes=DTYPES), {}),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_op_is_the_same_everywhere(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    case, sizes = CASES[name]
    assert_same_everywhere(case, data, tmp_path_factory.mktemp("op"), sizes)


def test_an_index_beyond_the_axis_counts_nowhere() -> None:
    module = TorchModule(one_op(Case(Scatter("d", "z", 3), (("d",), ("d",)), dtypes=DTYPES), {"d": 4}))
    found = module(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1, -1, 1, 3]))
    assert found.tolist() == [0.0, 5.0, 0.0]


def test_engines_add_in_order_in_any_batch(tmp_path: Path) -> None:
    graph = one_op(Case(Scatter("b", "z", 3), (("a", "b"), ("a", "b")), dtypes=DTYPES), {})
    module, random = TorchModule(graph), np.random.default_rng(0)
    x = (random.standard_normal((5, 40)) * 10.0 ** random.integers(-6, 6, (5, 40))).astype(np.float32)
    index = random.integers(0, 3, x.shape)
    expected = np.zeros((5, 3), np.float32)
    for row, column in np.ndindex(*x.shape):
        expected[row, index[row, column]] += x[row, column]
    (found,) = run_onnx(graph, module, [x, index], tmp_path, target="cpu")
    assert found.tobytes() == expected.tobytes()
    for row in range(5):
        (alone,) = run_onnx(graph, module, [x[row : row + 1], index[row : row + 1]], tmp_path, target="cpu")
        assert alone.tobytes() == expected[row].tobytes()


ALL = "all: {linear: {over: [d_model, d_k], to: d_model}}"
POINTING = """{words: {as_keys: {from: text}}, keys: {as_keys: {from: x}},
  scores: {contract: {from: x, by: keys, over: d_model}}, SEEN weights: {softmax: keys},
  copied: {scatter: {by: words, over: keys, to: copies}}, output: {linear: d_model}}"""


def pointing(seen: str) -> str:
    """Steps that copy tokens of the text, with scores seen so."""
    return " ".join(POINTING.replace("SEEN", seen).split())


def test_copying_what_was_written_is_a_step(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, pointing("seen: {mask: {causal: true}},"), "copies: 18")
    decoder = assert_steps_are_the_training_form(graph, tmp_path)
    assert sorted(str(state.past.type) for state in decoder.states) == [
        "float32[batch, past, d_model=6]",
        "int64[batch, past]",
    ]


@pytest.mark.parametrize("seen", ["", "seen: mask,", "seen: {mask: {causal: true}}, less: {scale: 0.0001},"])
def test_copying_what_comes_later_is_refused(tmp_path: Path, seen: str) -> None:
    graph = inference(language_graph(tmp_path, pointing(seen), "copies: 18"))
    with pytest.raises(RuleError, match="cannot be decoded step by step: every position sees the ones after it"):
        derive_step(graph, "text")


def test_numbers_of_later_positions_are_refused(tmp_path: Path) -> None:
    steps = "{best: {argmax: d_model}, sums: {scatter: {from: x, by: best, over: positions, to: d_k}}, "
    graph = inference(language_graph(tmp_path, steps + f"{ALL}, sum: {{plus: x}}}}", "d_k: 5"))
    with pytest.raises(RuleError, match="'scatter' mixes positions of 'text' and has no step rule"):
        derive_step(graph, "text")


def test_padding_is_not_added(tmp_path: Path) -> None:
    steps = "{best: {argmax: d_model}, sums: {scatter: {from: x, by: best, over: positions, to: d_k}}}"
    graph = tagging_graph(tmp_path, f"{{part: {{do: {steps}}}, {ALL}}}", "d_k: 6", "classification")
    assert_padding_does_not_matter(graph, tmp_path)


MISTAKES = {
    "{sum: {scatter: {by: x, over: d_model, to: seven}}}": "needs int64 indices",
    "{sum: {scatter: {by: text, over: d_model, to: seven}}}": r"int64\[batch, text\] has no axis d_model",
    "{best: {argmax: d_model}, sum: {scatter: {from: x, by: best, over: text, to: d_model}}}": "already has an axis",
    "{sum: {scatter: {from: text, by: text, over: text, to: seven}}}": "scatter needs vectors",
}


@pytest.mark.parametrize("steps", MISTAKES)
def test_mistakes_are_refused_with_their_place(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError, match=MISTAKES[steps]) as error:
        language_graph(tmp_path, steps.replace("}}}", "}}, other: {linear: {from: x, to: seven}}}"), "seven: 7")
    (problem,) = error.value.problems
    assert problem.span.line == 6


COPIER = """\
task: translation
sizes: {d_model: 16, d_k: 16, vocabulary: 40, places: 256}
inputs: {source: {tokens: vocabulary}, target: {tokens: vocabulary}}
model:
  encoder: {from: source, do: [embedding: d_model, {scale: 0.1}, {add: {learned_positions: places}}]}
  decoder: {from: target, do: [embedding: d_model, {scale: 0.1}, {add: {learned_positions: places}}]}
  logits: {from: decoder, do: [copying: {memory: encoder, tokens: source}]}
"""


def test_a_model_learns_to_copy_tokens_that_it_never_saw(tmp_path: Path) -> None:
    """Trained on one half of the vocabulary, tested on the other."""
    (tmp_path / "model.yaml").write_text(COPIER)
    graph = compile_training(load_spec(tmp_path / "model.yaml")).graph
    module = TorchModule(graph, seed=0).train()
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    random = torch.Generator().manual_seed(0)
    for _ in range(200):
        source = torch.randint(4, 22, (32, 5), generator=random)
        target = torch.cat((torch.ones(32, 1, dtype=torch.int64), source[:, :-1]), 1)
        loss, *_ = module(source, target, source)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    source = torch.randint(22, 40, (32, 5), generator=random)
    target = torch.cat((torch.ones(32, 1, dtype=torch.int64), source[:, :-1]), 1)
    with torch.no_grad():
        found = module.eval().all_values(source, target, source)
    (written,) = (value for name, value in found.items() if name.endswith("logarithms"))
    assert (written.argmax(-1) == source).float().mean() > 0.9
