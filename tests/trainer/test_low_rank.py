"""Updates of low rank are LoRA: the same weights as with factors as modules, trained by torch's own optimizer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from several_processes import train_together, write_tiny
from torch import nn

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.low_rank import LowRankOptimizer, low_rank_optimizer
from xformc.trainer.train import Options, train_weights

QUERIES = "\n  low_rank: {rank: 2, scale: 3.0, parameters: ['*/*/*/query', '*/*/*/output'], whole: ['**/gain']}"
CHANGES = (("average: 2", f"average: 1{QUERIES}"), ("  steps: 12\n", "  steps: 12\n  precision: float32\n"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("low_rank"), *CHANGES)


@pytest.fixture(scope="module")
def spec(folder: Path) -> Spec:
    return load_spec(folder / "tiny.yaml")


def test_steps_are_those_of_factors_as_parameters(spec: Spec) -> None:
    model = TorchModule(run_passes(begin(spec), after=SHARED).graph, seed=1)
    optimizer = low_rank_optimizer(spec, model, seed=5)
    assert isinstance(optimizer, LowRankOptimizer)
    adapted = optimizer._factors
    names = {id(parameter): path for path, parameter in parameters_by_path(model).items()}
    assert {names[id(one.weight)].rpartition("/")[0].rpartition("/")[2] for one in adapted} == {"query", "output"}
    shapes = {names[id(one.weight)]: (tuple(one.up.shape), tuple(one.down.shape)) for one in adapted}
    assert shapes["encoder/0/self_attention/query/weight"] == ((16, 2), (2, 16))  # heads and d_k are one axis of it
    assert shapes["encoder/0/self_attention/output/weight"] == ((16, 2), (2, 16))
    assert shapes["encoder/0/feed_forward/output/weight"] == ((16, 2), (2, 32))
    first = adapted[0]
    start, target = first.weight.detach().clone(), torch.randn(first.weight.shape)
    up, down = (nn.Parameter(factor.detach().clone()) for factor in (first.up, first.down))
    plain = torch.optim.Adam([up, down], lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((first.weight - target) ** 2).sum()
        loss = loss + sum((one.weight * 0).sum() for one in adapted[1:])
        loss.backward()
        optimizer.step()
        plain.zero_grad()
        ((start + 3.0 * (up @ down).reshape(start.shape) - target) ** 2).sum().backward()
        plain.step()
    wanted = start + 3.0 * (up @ down).reshape(start.shape)
    torch.testing.assert_close(first.weight.detach(), wanted.detach(), rtol=0, atol=1e-5)
    change = (first.weight.detach() - start).reshape(16, 16)
    assert torch.linalg.matrix_rank(change, rtol=1e-4) == 2


def test_a_run_changes_what_was_named_and_goes_on_to_the_bit(folder: Path, spec: Spec) -> None:
    for run, options in (("whole", Options()), ("parts", Options(minutes=1e-9)), ("parts", Options(resume=True))):
        train_weights(spec, folder / "data", folder / run, options, quiet=True)
    whole, parts = (read_weights(folder / run).arrays for run in ("whole", "parts"))
    assert all((whole[name] == parts[name]).all() for name in whole)
    first = TorchModule(run_passes(begin(spec), after=SHARED).graph, seed=spec.train.seed).arrays()
    changed = {name for name in whole if not np.array_equal(whole[name], first[name])}
    assert changed == {name for name in whole if name.endswith(("query/weight", "output/weight", "gain"))}
    assert train_together(2, folder, ("together", Options())) == [0, 0]
    together = read_weights(folder / "together").arrays
    assert all(np.allclose(whole[name], together[name], rtol=0, atol=1e-4) for name in whole)


def test_mistakes_are_shown_at_their_place(folder: Path, spec: Spec) -> None:
    with pytest.raises(UserError, match=r"--shard and train\.low_rank exclude"):
        train_weights(spec, folder / "data", folder / "shard", Options(shard=True))
    text = (folder / "tiny.yaml").read_text()
    for wrong, message in (("encoder/embedding", "matches no weight of a linear map"), ("dec", "matches no weight")):
        path = folder / "wrong.yaml"
        path.write_text(text.replace("'*/*/*/query'", f"'{wrong}'"))
        with pytest.raises(SpecError, match=message) as error:
            load_spec(path).graph()
        assert error.value.problems[0].span.line > 1
