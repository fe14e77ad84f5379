import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import TinyModel, copy_examples, make_recipe, save_checkpoint
from tiny_run import SPEC, train_tiny, write_corpus, write_spec
from torch import nn

from xformc.compiler.spec.sections import Adam, AdamW, Lion, Muon, Optimizer
from xformc.errors import UserError
from xformc.trainer.checkpoint import State, load_checkpoint
from xformc.trainer.loop import fit
from xformc.trainer.muon import MuonOptimizer
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.train import Options

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


MUON = SPEC.replace("train:\n", "train:\n  optimizer: {muon: {weight_decay: 0.02}}\n").replace("steps: 60", "steps: 10")


@pytest.mark.processor
@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
def test_muon_takes_heads_as_matrices_and_resumes_to_the_bit(tmp_path: Path) -> None:
    spec, data = write_spec(tmp_path, MUON), write_corpus(tmp_path / "data", 40)
    train_tiny(spec, data, tmp_path / "whole", Options())
    state = train_tiny(spec, data, tmp_path / "cut", Options())
    assert state.step == 10
    for late in (tmp_path / "cut" / "checkpoints").glob("00000010"):
        shutil.rmtree(late)
    train_tiny(spec, data, tmp_path / "cut", Options(resume=True))
    names = ["weights.safetensors", "checkpoints/00000010/optimizer.safetensors"]
    assert [(tmp_path / "cut" / one).read_bytes() for one in names] == [
        (tmp_path / "whole" / one).read_bytes() for one in names
    ]
    moments = load_file(tmp_path / "whole" / names[1])
    query = "encoder/0/self_attention/query/weight"
    assert moments[f"momentum_buffer/{query}"].shape == load_file(tmp_path / "whole" / names[0])[query].shape
    assert f"exp_avg/{query}" not in moments
    [embedding] = [name for name in moments if name.startswith("exp_avg/") and "embedding" in name]
    assert embedding.replace("exp_avg", "momentum_buffer") not in moments


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
def test_muon_moves_a_weight_as_torch_moves_its_matrix() -> None:
    torch.manual_seed(1)
    weight, matrix = nn.Parameter(torch.randn(2, 3, 4)), nn.Parameter(torch.zeros(6, 4))
    matrix.data.copy_(weight.data.view(6, 4))
    ours = MuonOptimizer(Muon(weight_decay=0.1), {weight: 1}, None)
    reference = torch.optim.Muon([matrix], lr=0.0, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        weight.grad = torch.randn(2, 3, 4)
        matrix.grad = weight.grad.view(6, 4)
        for optimizer in (ours, reference):
            for group in optimizer.param_groups:
                group["lr"] = 0.1
            optimizer.step()
    assert torch.equal(weight.view(6, 4), matrix)


def test_muon_needs_a_pytorch_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(UserError, match=r"muon needs PyTorch 2\.9 or newer; this is 2"):
        MuonOptimizer(Muon(), {nn.Parameter(torch.zeros(2, 2)): 1}, None)
