"""The blocks of a spec as PyTorch modules: common uses of modules work and do not change the result by a bit."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]  # documented, not in __all__
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from tests.small_specs import names, small
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.node_steps import Operators
from xformc.compiler.backends.torch.parameter_paths import attribute_of, parameters_by_path, path_of
from xformc.compiler.backends.torch.plan import BlockPlan, plan_blocks
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.masks import PaddingMask, Select
from xformc.compiler.passes.with_loss import with_loss
from xformc.compiler.spec import Spec

LENGTH = 6
Gradients = dict[str, Tensor]


def flat_loss(graph: Graph, module: nn.Module, inputs: list[Tensor]) -> Tensor:
    """The loss by running the nodes one after the other, as the graph has them."""
    values: dict[str, Tensor] = dict(parameters_by_path(module))
    values.update(zip((value.name for value in graph.inputs), inputs, strict=True))
    operators = Operators(module, {})
    for node in graph.nodes:
        function, arguments, results = operators.step(node)
        result = function(*(values[name] for name in arguments))
        values.update(zip(results, result if len(results) > 1 else (result,), strict=True))
    return values[graph.outputs[0].name]


def inputs_of(graph: Graph) -> list[Tensor]:
    """Random inputs: tokens and labels that are not padding, vectors, and masks that hide nothing."""
    generator = torch.Generator().manual_seed(0)

    def draw(type: Type) -> Tensor:
        shape = [axis.size or (2 if axis.name == "batch" else LENGTH) for axis in type.axes]
        if type.dtype == "bool":
            return torch.ones(shape, dtype=torch.bool)
        if type.dtype == "int64":
            return torch.randint(1, 5, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    return [draw(value.type) for value in graph.inputs]


def block(part: Tensor | nn.Module) -> Block:
    """A part of a tree: PyTorch's types do not say that it is a block."""
    assert isinstance(part, Block)
    return part


def gradients(loss: Tensor, module: nn.Module) -> Gradients:
    module.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}


def assert_same(first: Gradients, second: Gradients) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.fixture
def loss_graph(tiny_spec: Spec) -> Graph:
    return with_loss(compile_spec(tiny_spec), tiny_spec.results, 0.1)


def seeded_loss(module: nn.Module, inputs: list[Tensor]) -> Tensor:
    torch.manual_seed(5)
    return module(*inputs)[0]


@pytest.mark.parametrize("name", names())
def test_tree_gives_the_bits_of_the_flat_graph(name: str) -> None:
    spec = small(name)
    graph = with_loss(compile_spec(spec), spec.results, 0.1)
    module, inputs = TorchModule(graph, seed=1).train(), inputs_of(graph)
    torch.manual_seed(5)
    expected = flat_loss(graph, module, inputs)
    flat = gradients(expected, module)
    found = seeded_loss(module, inputs)
    assert torch.equal(found, expected)
    assert_same(gradients(found, module), flat)
    assert list(module.arrays()) == [parameter.name for parameter in graph.parameters]
    torch.manual_seed(5)
    values = module.all_values(*inputs)
    assert torch.equal(values[graph.outputs[0].name], expected)
    assert {value.name for node in graph.nodes for value in node.outputs} <= values.keys()


def test_hooks_see_what_goes_in_and_out_of_a_layer(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).eval(), inputs_of(loss_graph)
    seen: list[tuple[tuple[Tensor, ...], Tensor]] = []

    def note(_: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        seen.append((given, result))

    encoder = block(module.encoder)
    for layer in (encoder[0], encoder[-1]):
        layer.register_forward_hook(note)
    module(*inputs)
    values = module.all_values(*inputs)
    assert [len(given) for given, _ in seen] == [2, 2]
    assert torch.equal(seen[0][0][0], values["encoder/embed/dropout"])
    assert torch.equal(seen[0][0][1], values["source_keys/mask"])
    assert seen[0][1] is seen[1][0][0]
    assert torch.equal(seen[1][1], values["encoder/1/feed_forward/layer_norm"])


class Checkpointed(nn.Module):
    """A layer that computes its values once more in the backward pass."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, *inputs: Tensor) -> Tensor:
        self.calls += 1
        return checkpoint(self.layer, *inputs, use_reentrant=False)


def test_checkpointed_layers_give_the_same_loss_and_gradients(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).train(), inputs_of(loss_graph)
    expected = seeded_loss(module, inputs)
    plain = gradients(expected, module)
    encoder, decoder = block(module.encoder), block(module.decoder)
    layers = [Checkpointed(layer) for stage in (encoder, decoder) for layer in stage]
    for stage, first in ((encoder, 0), (decoder, 2)):
        for index in range(2):
            stage[index] = layers[first + index]
    found = seeded_loss(module, inputs)
    assert torch.equal(found, expected)
    renamed = {name.replace("layer.", ""): value for name, value in gradients(found, module).items()}
    assert_same(renamed, plain)
    assert [layer.calls for layer in layers] == [1, 1, 1, 1]


class LowRank(nn.Module):
    """A linear map plus a trained one of low rank, which begins as zero (Hu et al., 2021)."""

    def __init__(self, base: nn.Module, width: int, new: tuple[int, ...], rank: int = 2) -> None:
        super().__init__()
        self.base, self.new = base, new
        self.a = nn.Parameter(torch.randn(rank, width))
        self.b = nn.Parameter(torch.zeros(torch.Size(new).numel(), rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.a.T @ self.b.T).unflatten(-1, self.new)


def test_low_rank_updates_take_the_place_of_a_linear_map(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).train(), inputs_of(loss_graph)
    expected = seeded_loss(module, inputs)
    module.requires_grad_(requires_grad=False)
    attention = block(block(module.decoder)[1].causal_self_attention)
    attention.query = query = LowRank(attention.get_submodule("query"), 16, (2, 8))
    found = seeded_loss(module, inputs)
    assert torch.equal(found, expected)
    name = "decoder.1.causal_self_attention.query"
    assert gradients(found, module).keys() == {f"{name}.a", f"{name}.b"}
    assert query.b.grad is not None and query.b.grad.abs().max() > 0
    with torch.no_grad():
        query.b.add_(1.0)
    assert not torch.equal(seeded_loss(module, inputs), expected)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    if not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    store = FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_sharded_layers_give_the_same_loss_and_gradients(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).train(), inputs_of(loss_graph)
    expected = seeded_loss(module, inputs)
    plain = gradients(expected, module)
    mesh = init_device_mesh("cpu", (1,))
    for layer in (*block(module.encoder), *block(module.decoder)):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    found = seeded_loss(module, inputs)
    assert torch.equal(found, expected)
    sharded = gradients(found, module)
    whole = {name: value.full_tensor() for name, value in sharded.items() if isinstance(value, DTensor)}
    assert whole.keys() == sharded.keys()
    torch.testing.assert_close(whole, plain)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_layers_compile_alone(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).eval(), inputs_of(loss_graph)
    expected = seeded_loss(module, inputs)
    for layer in block(module.encoder):
        layer.compile(fullgraph=True, backend="eager")
    torch.testing.assert_close(seeded_loss(module, inputs), expected)


def test_dropout_of_one_block_can_be_turned_off(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).eval(), inputs_of(loss_graph)
    expected = seeded_loss(module, inputs)
    block(module.encoder)[0].train()
    assert not torch.equal(seeded_loss(module, inputs), expected)
    block(module.encoder)[0].eval()
    assert torch.equal(seeded_loss(module, inputs), expected)


def test_module_can_be_pickled(loss_graph: Graph) -> None:
    module, inputs = TorchModule(loss_graph).train(), inputs_of(loss_graph)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    restored = torch.load(file, weights_only=False)
    assert torch.equal(seeded_loss(restored, inputs), seeded_loss(module, inputs))


def test_parametrized_weights_are_used(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph).eval()
    inputs = torch.tensor([[5, 3]]), torch.tensor([[2, 8]])
    expected = module(*inputs)
    inner = block(module.encoder)[0].get_submodule("feed_forward.inner")
    nn.utils.parametrize.register_parametrization(inner, "weight", Doubled())
    assert not torch.equal(module(*inputs), expected)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_layers_outside_the_repeat_are_refused(tiny_graph: Graph) -> None:
    module = TorchModule(tiny_graph)
    assert len([*block(module.encoder)]) == 2
    with pytest.raises(IndexError):
        block(module.encoder)[2]


def test_repr_names_blocks_and_folds_layers(tiny_graph: Graph) -> None:
    text = repr(TorchModule(tiny_graph))
    assert "    (0-1): 2 x Block(\n      (self_attention): Block(\n" in text
    assert "(query): linear(weight[heads=2, d_k=8, d_model=16], bias[heads=2, d_k=8])\n" in text
    assert "  (logits): linear(tied encoder/embed/embedding/weight)\n" in text
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("path", ["a/forward/weight", "forward_/bias", "graph/type__/w", "a/b"])
def test_parts_that_modules_use_themselves_come_back(path: str) -> None:
    name = ".".join(map(attribute_of, path.split("/")))
    assert path_of(name) == path
    assert not any(hasattr(nn.Module(), part) for part in name.split("."))


WIDTH = (Axis("batch"), Axis("t"), Axis("d", 4))
SQUARE = Type("float32", (Axis("e", 4), Axis("d", 4)))


def interleaved(*, masked: bool) -> Graph:
    """Block `a` has nodes before and after one that is not its own: a mask, or a block that needs its first."""
    builder = GraphBuilder("interleaved")
    tokens = builder.input("tokens", Type("int64", (Axis("batch"), Axis("t"))))
    x = builder.input("x", Type("float32", WIDTH))
    first = builder.emit(Unary("relu"), (x,), "a/first")
    if masked:
        mask = builder.emit(PaddingMask(0), (tokens,), "mask")
        other = builder.emit(Select(), (mask, first, x), "a/selected")
    else:
        weight = builder.parameter("b/linear/weight", SQUARE, Initial("normal", 1.0))
        other = builder.emit(Unary("tanh"), (builder.emit(Linear(("d",)), (first, weight), "b/linear"),), "b/tanh")
    return verify(builder.finish((builder.emit(Unary("exp"), (other,), "a/last"),)))


def test_masks_inside_a_block_are_made_before_it() -> None:
    plan = plan_blocks(interleaved(masked=True))
    assert [step.path if isinstance(step, BlockPlan) else step.outputs[0].name for step in plan.steps] == ["mask", "a"]
    (block,) = plan.blocks
    assert (block.values, block.outputs) == (("x", "mask"), ("a/last",))


def test_blocks_that_alternate_are_run_by_the_block_around_them() -> None:
    graph = interleaved(masked=False)
    plan = plan_blocks(graph)
    assert [step.path if isinstance(step, BlockPlan) else step.outputs[0].name for step in plan.steps] == [
        "a/first",
        "b",
        "a/last",
    ]
    module, x = TorchModule(graph, seed=1), torch.randn(2, 3, 4)
    expected = (x.relu() @ module.get_parameter("b.linear.weight").T).tanh().exp()
    torch.testing.assert_close(module(torch.ones(2, 3, dtype=torch.int64), x), expected)


def test_operations_of_a_model_with_tied_parameters_are_counted_without_gradients() -> None:
    """PyTorch's counter hooks every module, and asks those of its inputs that require gradients for their graph."""
    from torch.utils.flop_counter import FlopCounterMode

    module = TorchModule(compile_spec(small("transformer_base"))).eval()
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(source, target)
    assert counter.get_total_flops() > 0
