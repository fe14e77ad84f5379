"""Selection by comparison gives the same in PyTorch and ONNX Runtime, ties included."""

from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import Case, one_op, run_onnx
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.masks import MASKED, NEVER
from xformc.compiler.ops.normalization import RMSNorm
from xformc.compiler.ops.selection import ArgMax, KeepTop
from xformc.compiler.spec import SpecError

CASES = {
    "argmax": Case(ArgMax("d"), (("a", "d", "b"),)),
    "keep_top": Case(KeepTop(2, "d"), (("a", "d", "b"),)),
    "keep_top along an axis of any size": Case(KeepTop(3, "b", NEVER), (("a", "b", "d"),)),
    "rms_norm": Case(RMSNorm(1e-6), (("a", "d"),), (("d",),)),
}


@pytest.mark.parametrize("name", CASES)
def test_op_is_the_same_in_torch_and_onnx(name: str, tmp_path: Path) -> None:
    case, random = CASES[name], np.random.default_rng(0)
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5}
    graph = one_op(case, sizes)
    inputs = [random.integers(0, 3, [sizes[a] for a in names]) for names in case.inputs]
    inputs = [array.astype(np.float32 if case.dtype(i) == "float32" else np.int64) for i, array in enumerate(inputs)]
    module = TorchModule(graph, seed=1)
    with torch.no_grad():
        expected = module(*map(torch.from_numpy, inputs)).numpy()
    for target in ("portable", "cpu"):
        (found,) = run_onnx(graph, module, inputs, tmp_path, target=target)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_keep_top_hides_all_but_the_best() -> None:
    module = TorchModule(one_op(Case(KeepTop(2, "d"), (("d",),)), {"d": 4}))
    assert module(torch.tensor([1.0, 3.0, 2.0, 3.0])).tolist() == [MASKED, 3.0, MASKED, 3.0]


def test_rms_norm_makes_the_mean_square_one() -> None:
    module = TorchModule(one_op(Case(RMSNorm(1e-6), (("a", "d"),), (("d",),)), {"a": 1, "d": 8}))
    module.load_arrays({"p/0": np.ones(8, np.float32)})
    result = module(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(result.square().mean(-1), torch.ones(5))


def test_rms_norm_is_in_full_precision_under_autocast() -> None:
    module = TorchModule(one_op(Case(RMSNorm(1e-6), (("a", "d"),), (("d",),)), {"a": 1, "d": 8}))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(x).dtype == torch.float32


def test_more_than_there_is_cannot_be_kept() -> None:
    with pytest.raises(RuleError, match="has fewer than 6 elements"):
        one_op(Case(KeepTop(6, "d"), (("d",),)), {"d": 4})


HASHED = """{query: {linear: {to: d_k}}, directions: {random_weight: [d_k, half]},
  turned: {contract: {from: query, by: directions, over: d_k}}, opposite: {scale: -1},
  sides: {join: {from: turned, by: opposite, to: buckets}}, bucket: {argmax: buckets}, bucket_of_key: as_keys,
  same: {equal: {from: bucket, by: bucket_of_key}}, keys: {as_keys: {from: query}}, values: {as_keys: {from: x}},
  scores: {contract: {from: query, by: keys, over: d_k}}, seen: {mask: {causal: true, edges: same}},
  weights: {softmax: keys}, mixed: {contract: {by: values, over: keys}}}"""
EXPERTS = """{inner: {linear: {to: [experts, d_k]}}, gate: {linear: {from: x, to: experts}},
  top: {keep_top: {count: 2, over: experts}}, share: {softmax: experts}, weighted: {times: {from: inner, by: share}},
  output: {linear: {over: [experts, d_k], to: d_model}}}"""


def test_positions_that_hash_alike_are_steps_with_a_cache_of_hashes(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, " ".join(HASHED.split()), "d_k: 4, half: 1, buckets: 2")
    decoder = assert_steps_are_the_training_form(graph, tmp_path)
    assert sorted(str(state.past.type) for state in decoder.states) == [
        "float32[batch, past, d_k=4]",
        "float32[batch, past, d_model=6]",
        "int64[batch, past]",
    ]
    (drawn,) = (parameter for parameter in graph.parameters if not parameter.trained)
    assert drawn.name == "body/directions/weight"


def test_mixture_of_experts_is_its_own_step(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, " ".join(EXPERTS.split()), "d_k: 3, experts: 4")
    assert not assert_steps_are_the_training_form(graph, tmp_path).states


def test_padding_is_never_kept(tmp_path: Path) -> None:
    steps = """{score: {linear: heads}, top: {keep_top: {count: 3, over: positions}}, weights: {softmax: positions},
      pooled: {contract: {by: x, over: positions}}, mixed: {linear: {over: [heads, d_model], to: d_model}},
      output: {plus: {by: x}}}"""
    assert_padding_does_not_matter(tagging_graph(tmp_path, " ".join(steps.split()), "heads: 2"), tmp_path)


REFUSED = {
    "[keep_top: {count: 0.5, over: d_model}]": "count must be a positive whole number, found 0.5",
    "[keep_top: {count: 9, over: d_model}]": "keep_top: the axis d_model of "
    "float32[batch, text, d_model=6] has fewer than 9 elements",
    "[argmax: heads]": "start: float32[batch, text, d_model=6] has no axis 'heads'",
    "{best: {argmax: d_model}, same: {equal: x}}": "compare: compares float32 with float32 or int64 with int64, "
    "found int64[batch, text] and float32[batch, text, d_model=6]",
    "[{argmax: d_model}, {equal: 0.5}]": "body/argmax has whole numbers, so 'by' must be one, found 0.5",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_selection_is_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    (problem,) = error.value.problems
    assert (problem.message, problem.span.line) == (REFUSED[steps], 6)
