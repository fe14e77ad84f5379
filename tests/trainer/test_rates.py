"""Parameters with a part of the schedule's rate."""

from pathlib import Path

import pytest
import torch
from tiny_run import SPEC, write_spec

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.trainer.low_rank import low_rank_optimizer
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.rates import set_rate

RATES = "\n  rates: {encoder: 0.5, '**/feed_forward': 0.25}\n"
OPTIMIZERS = ["adam", "adamw", "lion", "muon"]


def changes(spec: Spec, parts: dict[str, float]) -> dict[str, torch.Tensor]:
    """What a step changes."""
    torch.manual_seed(1)
    model = TorchModule(run_passes(begin(spec), after=SHARED).graph, seed=1)
    optimizer = make_optimizer(spec.train.optimizer, model, parts)
    before = {path: one.detach().clone() for path, one in parameters_by_path(model).items()}
    for one in model.parameters():
        one.grad = torch.randn_like(one)
    set_rate(optimizer, 0.125)
    optimizer.step()
    return {path: one.detach() - before[path] for path, one in parameters_by_path(model).items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_of_a_parameter_is_its_part_of_the_schedules(name: str, tmp_path: Path) -> None:
    text = SPEC.replace("  schedule:", f"  optimizer: {{{name}: {{}}}}\n  schedule:").replace(
        "\ntrain:", f"\ntrain:{RATES}", 1
    )
    spec = load_spec(write_spec(tmp_path, text.replace("\n\n", "\n")))
    parts = spec.learning_rates()
    whole, rated = changes(spec, {}), changes(spec, parts)
    assert len({0.25, 0.5} & set(parts.values())) == 2 and parts["encoder/0/feed_forward/inner/weight"] == 0.25
    for path, change in whole.items():
        torch.testing.assert_close(rated[path], parts.get(path, 1.0) * change, rtol=1e-3, atol=1e-6)


def test_factors_have_the_part_of_their_weight(tmp_path: Path) -> None:
    low_rank = "  low_rank: {rank: 2, parameters: ['**/query'], whole: ['**/gain']}\n  rates: {encoder: 0.5}\n"
    spec = load_spec(write_spec(tmp_path, SPEC + low_rank))
    model = TorchModule(run_passes(begin(spec), after=SHARED).graph, seed=1)
    optimizer = low_rank_optimizer(spec, model, seed=1)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    set_rate(optimizer, 0.1)
    optimizer.step()
    up = {
        path: optimizer.state[one]["up"]
        for path, one in parameters_by_path(model).items()
        if path.endswith("query/weight")
    }
    first, second = (next(one.abs() for path, one in up.items() if path.startswith(stage)) for stage in ("enc", "dec"))
    torch.testing.assert_close(first, torch.full_like(first, 0.05))
    torch.testing.assert_close(second, torch.full_like(second, 0.1))


def test_rate_of_nothing_is_an_error_at_its_place(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path, SPEC + "  freeze: [encoder]\n  rates: {encoder/0: 0.5}\n"))
    with pytest.raises(SpecError, match="'encoder/0' matches no trained parameter"):
        spec.graph()
