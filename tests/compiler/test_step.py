"""The derived step: prepare and n steps equal the training form on n tokens; non-causal models are rejected."""

from pathlib import Path

import numpy as np
import pytest
import torch

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.keys import Append
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import Decoder, derive_step, with_beam
from xformc.compiler.spec import load_spec

VARIANTS = {
    "post-norm": "",
    "pre-norm": "choices: {norm: pre}",
    "learned positions": "choices: {positions: learned}\nsizes: {max_positions: 32}\ntrain: {max_length: 32}",
    "no positions": "choices: {positions: none}",
    "heads of another width": "sizes: {d_k: 5, d_v: 3}",
}
SIZES = "extends: transformer_base\nsizes: {layers: 2, d_model: 8, d_ff: 12, heads: 2, vocabulary: 20%s}\n"


def graph_of(tmp_path: Path, text: str) -> Graph:
    lines = text.splitlines()
    sizes = [line for line in lines if line.startswith("sizes: {")]
    extra = f", {sizes[0][8:-1]}" if sizes else ""
    path = tmp_path / "variant.yaml"
    path.write_text(SIZES % extra + "\n".join(line for line in lines if line not in sizes))
    return inference(compile_spec(load_spec(path)))


def run_steps(
    decoder: Decoder, prepare: TorchModule, step: TorchModule, source: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    constants = prepare(source)
    constants = constants if isinstance(constants, tuple) else (constants,)
    sizes = {"batch": len(source), "past": 0}
    states = [
        torch.zeros([sizes[a.name] if a.size is None else a.size for a in state.past.type.axes])
        for state in decoder.states
    ]
    logits = []
    for position in range(target.shape[1]):
        token = target[:, position : position + 1]
        now, *states = step(token, torch.tensor(position), *constants, *states)
        logits.append(now)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_prepare_and_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    graph = graph_of(tmp_path, VARIANTS[name])
    module, decoder = TorchModule(graph, seed=3).eval(), derive_step(graph)
    parts = []
    for part in (decoder.prepare, decoder.step):
        compiled = TorchModule(verify(part)).eval()
        compiled.load_arrays(module.arrays())
        parts.append(compiled)
    random = np.random.default_rng(0)
    source = torch.from_numpy(random.integers(4, 20, (3, 6)))
    source[1, 4:] = 0
    target = torch.from_numpy(random.integers(4, 20, (3, 7)))
    with torch.no_grad():
        expected = module(source, target)
        prepare, step = parts
        found = run_steps(decoder, prepare, step, source, target)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_step_does_once_what_does_not_depend_on_the_target(tiny_graph: Graph) -> None:
    decoder = derive_step(tiny_graph)
    names = {value.name for value in decoder.constants}
    assert all("cross_attention" in name or name == "source_keys/mask" for name in names)
    assert len(names) == 2 * 2 + 1, "a key and a value for each layer, and the mask"
    assert not any(node.outputs[0].name.startswith("encoder/") for node in decoder.step.nodes)
    encoder_only = {p.name for p in decoder.prepare.parameters} & {p.name for p in decoder.step.parameters}
    assert encoder_only == {"encoder/embed/embedding/weight"}


def test_step_carries_a_key_and_a_value_cache_for_each_layer(tiny_graph: Graph) -> None:
    decoder = derive_step(tiny_graph)
    appends = [node for node in decoder.step.nodes if isinstance(node.op, Append)]
    assert len(decoder.states) == len(appends) == 4
    for state in decoder.states:
        assert state.past.type.names == ("batch", "heads", "past", state.past.type.names[-1])


def test_beam_is_on_the_target_side_only(tiny_graph: Graph) -> None:
    decoder = with_beam(derive_step(tiny_graph))
    verify(decoder.step)
    assert "beam" in decoder.token.type.names and "beam" in decoder.logits.type.names
    assert all("beam" in state.past.type.names for state in decoder.states)
    assert not any("beam" in value.type.names for value in decoder.constants)


NOT_CAUSAL = {
    "self_attention": "every position sees the ones after it",
    "{attention: {memory: x, causal: false}}": "every position sees the ones after it",
}


@pytest.mark.parametrize("block", NOT_CAUSAL)
def test_step_refuses_what_is_not_causal(tmp_path: Path, block: str) -> None:
    text = Path("specs/transformer_base.yaml").read_text()
    changed = text.replace("sublayer: causal_self_attention", f"sublayer: {block}")
    assert changed != text
    path = tmp_path / "wrong.yaml"
    path.write_text(changed)
    graph = inference(compile_spec(load_spec(path)))
    with pytest.raises(RuleError) as error:
        derive_step(graph)
    assert NOT_CAUSAL[block] in error.value.message
    assert "decoder/0/" in error.value.message
    assert error.value.place is not None


def test_step_refuses_an_encoder_that_sees_the_target(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "extends: transformer_base\nmodel:\n  decoder:\n    do:\n      - embed\n"
        "      - sublayer: {cross_attention: {memory: encoder}}\n"
        "      - sublayer: self_attention\n      - final_norm\n"
    )
    with pytest.raises(RuleError, match="cannot be decoded step by step"):
        derive_step(inference(compile_spec(load_spec(path))))
