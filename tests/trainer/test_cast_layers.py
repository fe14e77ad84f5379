"""Layers that cast their weights at once have the results of those that autocast casts, to the bit."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from several_processes import write_tiny
from small_specs import small
from torch import Tensor, distributed
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]  # documented, not in __all__
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

from xformc.compiler.backends.torch.module import TorchModule, layers_of
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import load_spec
from xformc.specs import find_spec
from xformc.trainer import train
from xformc.trainer.cast_layers import cast_layers
from xformc.trainer.loop import autocast
from xformc.trainer.parallel import whole_of
from xformc.trainer.recompute import recompute
from xformc.trainer.train import Options

SIZES = ["sizes.layers=2", "sizes.d_model=16", "sizes.d_ff=24", "sizes.heads=2", "sizes.vocabulary=60"]
TOKENS = [torch.randint(4, 60, shape) for shape in ((3, 7), (3, 9), (3, 9))]


class Counted(TorchDispatchMode):
    """Counts the operators that are called in the block."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.calls = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def module_of(name: str, *settings: str) -> TorchModule:
    return TorchModule(compile_training(load_spec(find_spec(name), [*SIZES, *settings])).graph, seed=1)


def trained(module: TorchModule, inputs: Sequence[Tensor], *, bfloat16: bool = True) -> list[Tensor | None]:
    """The loss with dropout drawn from a seed, and the gradients."""
    torch.manual_seed(1)
    with autocast(torch.device("cpu"), bfloat16):
        loss = module(*inputs)[0]
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    return [loss.detach(), *(one.grad for one in module.parameters())]


def same(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> bool:
    """Whether they have the same bits."""
    pairs = zip(first, second, strict=True)
    return all(
        one is other or (one is not None and other is not None and torch.equal(one, other)) for one, other in pairs
    )


@pytest.mark.parametrize("name", ["multi30k", "llama", "universal_transformer", "rwkv", "mixture_of_experts"])
@pytest.mark.parametrize("bfloat16", [True, False])
def test_layers_have_the_same_loss_and_gradients(name: str, bfloat16: bool) -> None:
    graph = compile_training(small(name)).graph
    plain, ours = TorchModule(graph, seed=1), TorchModule(graph, seed=1)
    cast_layers(ours)
    inputs = [torch.randint(4, 50, (3, 7)) for _ in graph.inputs]
    assert same(trained(ours, inputs, bfloat16=bfloat16), trained(plain, inputs, bfloat16=bfloat16))


def test_weights_are_cast_once_in_each_pass_of_a_layer() -> None:
    plain, ours = module_of("transformer_base"), module_of("transformer_base")
    cast_layers(ours)
    calls = list[Counter[str]]()
    for module in (plain, ours):
        with Counted() as counted:
            trained(module, TOKENS)
        calls.append(counted.calls)
    linear = 2 * (4 + 2) + 2 * (8 + 2)
    assert calls[1]["_foreach_copy_"] == 2 * len(layers_of(ours))
    saved = calls[0]["_to_copy"] - calls[1]["_to_copy"]
    assert saved == 2 * 2 * linear, "a weight and a bias of each map, forward and backward"


def test_frozen_weights_are_left_to_autocast() -> None:
    plain, ours = (module_of("gpt", "train.freeze=[decoder/0]") for _ in range(2))
    cast_layers(ours)
    frozen = [one for one in ours.parameters() if not one.requires_grad]
    assert frozen and same(trained(ours, TOKENS[1:]), trained(plain, TOKENS[1:]))
    assert all(one.grad is None for one in frozen)


@pytest.mark.parametrize("pattern", ["decoder/*", "decoder/0/*"])
def test_recomputed_layers_and_parts_have_the_same_gradients(pattern: str) -> None:
    plain, ours = module_of("gpt"), module_of("gpt")
    cast_layers(ours, [pattern])
    for module in (plain, ours):
        recompute(module, [pattern])
    assert same(trained(ours, TOKENS[1:]), trained(plain, TOKENS[1:]))
    cast_alone = [name for name, layer in layers_of(ours).items() if "_casting" in repr(layer.__dict__.get("forward"))]
    assert cast_alone == (["decoder/0", "decoder/1"] if pattern == "decoder/*" else ["decoder/1"])


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module", "ignore::FutureWarning")
def test_layers_with_parameters_in_parts_have_the_same_gradients(tmp_path: Path) -> None:
    if not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    expected = trained(module_of("gpt"), TOKENS[1:])
    module, store = module_of("gpt"), FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for block in (*layers_of(module).values(), module):
            fully_shard(cast(Any, block), mesh=mesh)
        cast_layers(module)
        with Counted() as counted:
            found = trained(module, TOKENS[1:])
        whole = [None if one is None else whole_of(one) for one in found]
    finally:
        distributed.destroy_process_group()
    assert same(whole, expected) and counted.calls["_foreach_copy_"] >= 2 * len(layers_of(module))


def test_a_run_in_bfloat16_casts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, ("steps: 12", "steps: 4\n  precision: bfloat16"))
    spec, cast_models = load_spec(tmp_path / "tiny.yaml"), list[object]()

    def cast_or_not(model: TorchModule, recomputed: Sequence[str]) -> None:
        cast_models.append(model)
        if len(cast_models) > 1:
            cast_layers(model, recomputed)

    monkeypatch.setattr(train, "cast_layers", cast_or_not)
    for run in ("plain", "cast"):
        train.train_weights(spec, tmp_path / "data", tmp_path / run, Options(), quiet=True)
    first, second = ((tmp_path / run / "weights.safetensors").read_bytes() for run in ("plain", "cast"))
    assert len(cast_models) == 2 and first == second


def test_a_model_with_an_auxiliary_loss_has_layers() -> None:
    settings = ["sizes.layers=2", "sizes.d_model=16", "sizes.vocabulary=60"]
    module = TorchModule(compile_training(load_spec(find_spec("sparse_experts"), settings)).graph, seed=1)
    assert list(layers_of(module)) == ["decoder/0", "decoder/1"]
