from pathlib import Path

import pytest
import torch
from tiny_model import TinyModel, copy_examples, make_recipe
from torch import nn

from xformc.compiler.spec.sections import Adam, AdamW, Lion, Optimizer
from xformc.trainer.checkpoint import State, load_checkpoint, save_checkpoint
from xformc.trainer.loop import fit
from xformc.trainer.optimizers import make_optimizer

CHOICES = [
    Optimizer(adam=Adam()),
    Optimizer(adamw=AdamW(beta1=0.8, epsilon=1e-6, weight_decay=0.3)),
    Optimizer(lion=Lion(weight_decay=0.3)),
]


def run(model: TinyModel, optimizer: torch.optim.Optimizer, steps: int, state: State | None = None) -> State:
    return fit(
        model,
        optimizer,
        copy_examples(),
        make_recipe(steps=steps),
        state or State(),
        on_update=lambda state, update: None,
        on_checkpoint=lambda state: state,
    )


@pytest.mark.parametrize("chosen", CHOICES, ids=lambda chosen: type(chosen.chosen).__name__)
def test_run_continues_to_the_bit_with_every_optimizer(chosen: Optimizer, tmp_path: Path) -> None:
    whole, first, second = TinyModel(), TinyModel(), TinyModel()
    run(whole, make_optimizer(chosen, whole), 6)
    optimizer = make_optimizer(chosen, first)
    folder = save_checkpoint(tmp_path, run(first, optimizer, 3), first, optimizer, {})
    optimizer = make_optimizer(chosen, second)
    run(second, optimizer, 6, load_checkpoint(folder, second, optimizer))
    assert torch.equal(second.embedding, whole.embedding)
    assert not torch.equal(second.embedding, TinyModel().embedding)


def stepped(chosen: Optimizer) -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(2.0)
    model.weight.grad, model.bias.grad = torch.tensor([[1.0, -3.0], [0.5, 0.0]]), torch.zeros(2)
    optimizer = make_optimizer(chosen, model)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    return model, optimizer


def test_weight_decay_is_apart_from_the_gradient_and_not_that_of_biases() -> None:
    model, _ = stepped(Optimizer(adamw=AdamW(weight_decay=0.5)))
    kept = 2.0 * (1 - 0.1 * 0.5)
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[kept - 0.1, kept + 0.1], [kept - 0.1, kept]]))
    assert torch.equal(model.bias.detach(), torch.full((2,), 2.0))


def test_lion_moves_by_signs_and_keeps_a_momentum() -> None:
    model, optimizer = stepped(Optimizer(lion=Lion(beta1=0.9, beta2=0.75, weight_decay=0.5)))
    kept = 2.0 * (1 - 0.1 * 0.5)
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[kept - 0.1, kept + 0.1], [kept - 0.1, kept]]))
    torch.testing.assert_close(optimizer.state[model.weight]["exp_avg"], 0.25 * torch.tensor([[1.0, -3.0], [0.5, 0.0]]))
    # The second step follows 0.9 of the momentum, and a tenth of the gradient.
    model.weight.grad = torch.tensor([[-1.0, -1.0], [-5.0, 0.0]])
    before = model.weight.detach().clone()
    optimizer.step()
    signs = torch.tensor([[1.0, -1.0], [-1.0, 0.0]])
    torch.testing.assert_close(model.weight.detach(), before * (1 - 0.1 * 0.5) - 0.1 * signs)
