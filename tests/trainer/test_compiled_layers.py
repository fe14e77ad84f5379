from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from several_processes import write_tiny
from torch import Tensor, distributed
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]  # documented, not in __all__
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from xformc.compiler.backends.torch.module import TorchModule, layers_of
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.specs import find_spec
from xformc.trainer import train
from xformc.trainer.compiled_layers import compile_layers
from xformc.trainer.recompute import recompute
from xformc.trainer.train import Options

SIZES = ["sizes.layers=2", "sizes.d_model=16", "sizes.d_ff=24", "sizes.heads=2", "sizes.vocabulary=60"]
TOKENS = [torch.randint(4, 60, (rows, length)) for rows, length in ((3, 7), (3, 9), (3, 9), (4, 5), (4, 6), (4, 6))]


def module_of(name: str, *settings: str) -> TorchModule:
    spec = load_spec(find_spec(name), settings)
    return TorchModule(run_passes(run_passes(begin(spec), after=SHARED)).graph)


def trained(module: TorchModule, *inputs: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """The loss with dropout drawn from a seed, and the gradients."""
    torch.manual_seed(1)
    module.zero_grad()
    loss = module(*inputs)[0]
    loss.backward()
    return loss, [None if one.grad is None else one.grad.clone() for one in module.parameters()]


class Counted:
    """Compiles with a backend that runs graphs as they are, and counts functions and their compilations."""

    def __init__(self) -> None:
        self.functions = self.compilations = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.functions += 1
        return cast(Any, torch).compile(function, dynamic=True, fullgraph=True, backend=self._backend)

    def _backend(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.compilations += 1
        return graph.forward


def test_layers_that_compute_alike_are_compiled_once_for_all_lengths() -> None:
    module, counted = module_of("transformer_base", *SIZES, "sizes.dropout=0.0"), Counted()
    expected = [trained(module, *TOKENS[at : at + 3]) for at in (0, 3)]
    compile_layers(module, compile=counted)
    found = [trained(module, *TOKENS[at : at + 3]) for at in (0, 3)]
    assert (counted.functions, counted.compilations) == (2, 2), "an encoder's layer and a decoder's"
    torch.testing.assert_close(found, expected)


def test_layers_have_parameters_of_their_own_and_follow_the_mode() -> None:
    module, (_, text, labels) = module_of("gpt", *SIZES), TOKENS[:3]
    compile_layers(module, compile=Counted())
    module.eval()
    before = module(text, labels)[0]
    with torch.no_grad():
        cast(Any, module).decoder[1].feed_forward.layer_norm.bias.add_(1.0)
    assert not torch.equal(module(text, labels)[0], before)
    assert not torch.equal(module.train()(text, labels)[0], module(text, labels)[0])


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module", "ignore::FutureWarning")
def test_layers_with_parameters_in_parts_are_compiled(tmp_path: Path) -> None:
    if not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    module, counted = module_of("gpt", *SIZES, "sizes.dropout=0.0"), Counted()
    expected = trained(module, *TOKENS[1:3])
    store = FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for block in (*layers_of(module).values(), module):
            fully_shard(cast(Any, block), mesh=mesh)
        compile_layers(module, compile=counted)
        loss, gradients = trained(module, *TOKENS[1:3])
        whole = [None if one is None else cast(Any, one).full_tensor() for one in gradients]
    finally:
        distributed.destroy_process_group()
    torch.testing.assert_close((loss, whole), expected)
    assert (counted.functions, counted.compilations) == (1, 1)


NESTED = """\
extends: gpt
sizes: {layers: 2, inner: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 30}
model:
  decoder:
    from: text
    do:
      - embedding: d_model
      - repeat: layers
        do: [sublayer: causal_self_attention, {repeat: inner, do: [sublayer: feed_forward]}]
      - final_norm
"""


def test_layers_inside_of_layers_are_a_part_of_these(tmp_path: Path) -> None:
    (tmp_path / "nested.yaml").write_text(NESTED)
    spec = load_spec(tmp_path / "nested.yaml")
    module, counted = TorchModule(run_passes(run_passes(begin(spec), after=SHARED)).graph), Counted()
    assert list(layers_of(module)) == ["decoder/0", "decoder/1"]
    compile_layers(module, compile=counted)
    assert counted.functions == 1


def test_layers_that_differ_are_compiled_apart() -> None:
    counted = Counted()
    compile_layers(module_of("convs2s", "sizes.vocabulary=60"), compile=counted)
    assert counted.functions > 2, "the layers have other windows"


def test_a_model_without_layers_is_compiled_whole_and_a_recurrence_not_at_all() -> None:
    for name, functions in (("feature_map_attention", 1), ("gru_classifier", 0), ("rwkv", 0)):
        counted = Counted()
        compile_layers(module_of(name, *(["sizes.layers=2"] if name == "rwkv" else [])), compile=counted)
        assert counted.functions == functions, name


def test_a_run_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, ("steps: 12", "steps: 2\n  precision: float32"))
    counted, plain = Counted(), compile_layers
    monkeypatch.setattr(train, "compile_layers", lambda model: plain(model, counted))
    spec, found = load_spec(tmp_path / "tiny.yaml"), list[float | None]()
    for run in ("plain", "compiled"):
        options = Options(compile=run == "compiled")
        done = train.train_weights(spec, tmp_path / "data", tmp_path / run, options, quiet=True)
        found.append(done.state.valid_loss)
    assert counted.compilations >= 2 and found[0] == pytest.approx(found[1], rel=1e-5)
    spec = load_spec(tmp_path / "tiny.yaml", ["train.recompute=[encoder/*/feed_forward]"])
    with pytest.raises(UserError, match="a part of a layer"):
        train.train_weights(spec, tmp_path / "data", tmp_path / "no", Options(compile=True))
    assert not (tmp_path / "no").exists()


def test_layers_are_recomputed_whole() -> None:
    module = module_of("gpt", *SIZES, "sizes.dropout=0.0")
    expected = trained(module, *TOKENS[1:3])
    compile_layers(module, compile=Counted())
    recompute(module, ["decoder/*"])
    torch.testing.assert_close(trained(module, *TOKENS[1:3]), expected)
