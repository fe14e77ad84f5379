"""The PyTorch form: parameter paths, whole-graph compilation, and attention through torch's own."""

import copy

import pytest
import torch

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import attribute_of
from xformc.compiler.graph.graph import Graph


def test_parameters_have_their_paths(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph)
    arrays = module.arrays()
    assert list(arrays) == [parameter.name for parameter in tiny_graph.parameters]
    assert list(module.state_dict()) == [path.replace("/", ".") for path in arrays]
    for parameter in tiny_graph.parameters:
        assert arrays[parameter.name].shape == parameter.type.sizes()


def test_every_public_name_of_a_module_is_reserved() -> None:
    """A block of a spec with such a name has an underscore."""
    public = [name for name in (*vars(TorchModule), *vars(Block), "graph") if not name.startswith("_")]
    assert [name for name in public if attribute_of(name) != f"{name}_"] == []


def test_fresh_parameters_depend_on_the_seed_only(tiny_graph: Graph) -> None:
    first, again, other = (TorchModule(tiny_graph, seed=seed).state_dict() for seed in (1, 1, 2))
    name = "encoder.0.self_attention.query.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


def test_torch_compile_takes_the_module_whole(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph).eval()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    source, target = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([[2, 8], [2, 9]])
    torch.testing.assert_close(compiled(source, target), module(source, target))


def test_attention_runs_through_torchs_own(tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = torch.nn.functional.scaled_dot_product_attention

    def count(*arguments, **keywords):
        calls.append(keywords["is_causal"])
        return original(*arguments, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", count)
    TorchModule(tiny_graph).eval()(torch.tensor([[5, 3]]), torch.tensor([[2, 8]]))
    assert calls == [False, False, True, False, True, False]


def test_padding_changes_nothing(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph).eval()
    target = torch.tensor([[2, 8, 9]])
    short = module(torch.tensor([[5, 6, 3]]), target)
    padded = module(torch.tensor([[5, 6, 3, 0, 0]]), torch.tensor([[2, 8, 9, 0]]))
    torch.testing.assert_close(padded[:, :3], short)


def test_module_can_be_copied(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph)
    copied = copy.deepcopy(module).train()
    module.eval()
    inputs = torch.tensor([[5, 3]]), torch.tensor([[2, 8]])
    torch.testing.assert_close(copied(*inputs), module(*inputs))
    with torch.no_grad():
        next(copied.parameters()).zero_()
    assert not torch.equal(copied(*inputs), module(*inputs))
