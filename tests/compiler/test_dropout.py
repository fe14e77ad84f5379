"""Dropout on a CPU: its rate, its mean, and a gradient that follows the values that were kept."""

import pytest
import torch

from xformc.compiler.backends.torch.dropout import dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_its_share_and_keeps_the_mean(probability: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(401, 1003, dtype=dtype), probability, training=True)
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=4e-3)
    assert dropped.float().mean().item() == pytest.approx(1.0, abs=2e-2)
    assert len(dropped.unique()) == 2


def test_dropout_passes_the_gradient_where_it_passed_the_value() -> None:
    x = torch.randn(7, 33, requires_grad=True)
    result = dropout(x, 0.25, training=True)
    result.backward(torch.full_like(result, 3.0))
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), 3.0 * result.detach())


def test_dropout_of_one_generator_state_is_one_mask() -> None:
    x = torch.ones(64, 64)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(dropout(x, 0.5, training=True))
    assert torch.equal(*results)
    assert not torch.equal(results[0], dropout(x, 0.5, training=True))


def test_dropout_does_nothing_when_not_training() -> None:
    x = torch.randn(5)
    assert dropout(x, 0.5, training=False) is x or torch.equal(dropout(x, 0.5, training=False), x)
