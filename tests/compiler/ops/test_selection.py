"""Picking by comparison is the same in PyTorch and ONNX Runtime, ties included."""

from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import Case, one_op, run_onnx

from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.masks import MASKED
from xformc.compiler.ops.normalization import RMSNorm
from xformc.compiler.ops.selection import ArgMax, Equal, KeepTop

CASES = {
    "argmax": Case(ArgMax("d"), (("a", "d", "b"),)),
    "keep_top": Case(KeepTop(2, "d"), (("a", "d", "b"),)),
    "equal": Case(Equal(), (("a", "b"), ("b", "c")), dtypes=("int64", "int64")),
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
    for fused in (False, True):
        (found,) = run_onnx(graph, module, inputs, tmp_path, fused=fused)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_keep_top_hides_all_but_the_best() -> None:
    module = TorchModule(one_op(Case(KeepTop(2, "d"), (("d",),)), {"d": 4}))
    assert module(torch.tensor([1.0, 3.0, 2.0, 3.0])).tolist() == [MASKED, 3.0, MASKED, 3.0]


def test_rms_norm_makes_the_mean_square_one() -> None:
    module = TorchModule(one_op(Case(RMSNorm(1e-6), (("a", "d"),), (("d",),)), {"a": 1, "d": 8}))
    module.load_arrays({"p/0": np.ones(8, np.float32)})
    result = module(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(result.square().mean(-1), torch.ones(5))


def test_more_than_there_is_cannot_be_kept() -> None:
    with pytest.raises(RuleError, match="has no 6 to keep"):
        one_op(Case(KeepTop(6, "d"), (("d",),)), {"d": 4})
