import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import TinyModel, copy_examples, make_recipe, save_checkpoint
from tiny_run import SPEC, train_tiny, write_corpus, write_spec
from torch import nn

from xformc.compiler.spec.sections import Adam, AdamW, Lion, Muon, Optimizer
from xformc.trainer import muon
from xformc.trainer.checkpoint import State, load_checkpoint
from xformc.trainer.loop import fit
from xformc.trainer.muon import MuonOptimizer
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.rates import set_rate
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


SHAPES = [((6, 4), 1), ((4, 6), 1), ((2, 3, 4), 1), ((4, 3, 2), 2), ((5, 1), 1), ((6, 4), 1), ((16, 16), 1)]
"""Weights, and how many of their last axes are inputs: wide, tall, of several axes, and of one input."""


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
@pytest.mark.parametrize("largest", [1, 48, 2**25])
def test_muon_moves_weights_as_torch_moves_their_matrices(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of one, of two and of all of one shape; two of the weights have a part of the rate."""
    monkeypatch.setattr(muon, "LARGEST_BATCH", largest)
    torch.manual_seed(1)
    weights = {nn.Parameter(torch.randn(shape)): axes for shape, axes in SHAPES}
    rates = dict(zip(weights, (1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5), strict=True))
    bias = nn.Parameter(torch.zeros(3))
    ours = MuonOptimizer(Muon(weight_decay=0.1), weights, torch.optim.AdamW([bias], lr=0.0), rates)
    matrices = {one: nn.Parameter(one.detach().clone().flatten(-axes).flatten(0, -2)) for one, axes in weights.items()}
    start = {one: matrix.detach().clone() for one, matrix in matrices.items()}
    theirs = {
        one: torch.optim.Muon([matrix], lr=0.0, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        for one, matrix in matrices.items()
    }
    for step in range(4):
        bias.grad = torch.ones(3)
        set_rate(ours, 0.1 * 0.5**step)
        for weight, matrix in matrices.items():
            weight.grad = torch.randn_like(weight)
            matrix.grad = weight.grad.view_as(matrix)
        ours.step()
        ours.zero_grad()
        assert bias.grad is None and all(one.grad is None for one in weights)
        for weight, optimizer in theirs.items():
            optimizer.param_groups[0]["lr"] = 0.1 * 0.5**step * rates[weight]
            optimizer.step()
    for weight, matrix in matrices.items():
        moved = (matrix - start[weight]).abs().max().item()
        assert (weight.view_as(matrix) - matrix).abs().max() < 0.01 * moved, "bfloat16 has 8 bits"
        momentum = ours.state[weight]["momentum_buffer"]
        assert momentum.shape == weight.shape
        torch.testing.assert_close(momentum.view_as(matrix), theirs[weight].state[matrix]["momentum_buffer"])
    assert "exp_avg" in ours.state[bias] and bias.detach().all()


@pytest.mark.parametrize("shape", [(3, 24, 16), (2, 16, 24), (1, 16, 16)])
def test_orthogonal_has_singular_values_of_about_one_and_the_same_vectors(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.linspace(1.0, 3.0, min(shape[1:])) * torch.tensor([1e-3, 1.0, 1e3])[: shape[0], None]
    found = left.mT @ muon.orthogonal(left @ values.diag_embed() @ right).float() @ right.mT
    diagonal = found.diagonal(dim1=1, dim2=2)
    assert diagonal.min() > 0.6 and diagonal.max() < 1.3
    assert (found - diagonal.diag_embed()).abs().max() < 0.05


def test_muon_goes_on_with_a_momentum_that_was_loaded() -> None:
    """As from a checkpoint, which replaces the states of an optimizer."""
    torch.manual_seed(1)
    weights = [nn.Parameter(torch.randn(3, 2, 4)) for _ in range(2)]
    gradients = [torch.randn(3, 2, 4) for _ in range(6)]

    def stepped(optimizer: MuonOptimizer, numbers: range) -> None:
        for number in numbers:
            for index, weight in enumerate(weights):
                weight.grad = gradients[2 * number + index].clone()
            set_rate(optimizer, 0.1)
            optimizer.step()

    def made() -> MuonOptimizer:
        return MuonOptimizer(Muon(), dict.fromkeys(weights, 1), None)

    first = made()
    stepped(first, range(2))
    saved = {one: (one.detach().clone(), first.state[one]["momentum_buffer"].clone()) for one in weights}
    stepped(first, range(2, 3))
    whole = [one.detach().clone() for one in weights]
    second = made()
    for one, (values, momentum) in saved.items():
        one.data.copy_(values)
        second.state[one]["momentum_buffer"] = momentum
    stepped(second, range(2, 3))
    assert all(torch.equal(one, other) for one, other in zip(weights, whole, strict=True))
