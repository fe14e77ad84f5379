"""Recurrence: PyTorch, ONNX Runtime and the derived step agree, with states of any shape; errors have a place."""

from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import run_onnx
from steps import assert_steps_are_the_training_form, language_graph

from tests.runtime.kernel_session import kernel_library
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError, load_spec
from xformc.format.targets import Target

SUM = "cell: {do: {total: {plus: {from: total, by: x}}}}"
CELLS = {
    "a sum": f"[recurrence: {{state: {{total: d_model}}, {SUM}}}]",
    "rnn": "[rnn]",
    "gru": "[gru]",
    "lstm": "[lstm, rnn]",
    "two states of several axes": "[recurrence: {state: {memory: [heads, d_k], count: heads}, cell: {do: {"
    "new: {linear: [heads, d_k]}, memory: {plus: {from: new, by: memory}}, "
    "size: {contract: {by: memory, over: d_k}}, count: {plus: {from: size, by: count}}, "
    "small: {scale: 0.1}, weighted: {times: {from: memory, by: small}}, "
    "output: {linear: {over: [heads, d_k], to: d_model}}}}}]",
}


def recurrence(graph: Graph) -> Recurrence:
    return [node.op for node in graph.nodes if isinstance(node.op, Recurrence)][-1]


@pytest.mark.parametrize("name", CELLS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    graph = language_graph(tmp_path, CELLS[name], "heads: 2, d_k: 3" if "heads" in CELLS[name] else "")
    assert text.parse(text.format(graph)) == graph
    decoder = assert_steps_are_the_training_form(graph, tmp_path)
    assert all(state.past.type.names[:2] == ("batch", "text") for state in decoder.states)


def test_a_sum_is_the_sum(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, CELLS["a sum"])
    (node,) = (node for node in graph.nodes if isinstance(node.op, Recurrence))
    values = TorchModule(graph).all_values(torch.tensor([[4, 5, 6, 7]]))
    torch.testing.assert_close(values[node.outputs[0].name], values[node.inputs[0].name].cumsum(1))


COVERING = """\
task: translation
sizes: {d_model: 6, vocabulary: 20}
inputs: {source: {tokens: vocabulary}, target: {tokens: vocabulary}}
model:
  memory: {from: source, do: [embedding: d_model]}
  states:
    from: target
    do:
      start: {embedding: d_model}
      keys: {as_keys: {from: memory}}
      output:
        recurrence:
          from: start
          state: {covered: source_keys}
          cell:
            do:
              products: {contract: {from: x, by: keys, over: d_model}}
              scores: {minus: covered}
              seen: mask
              weights: {softmax: source_keys}
              covered: {plus: covered}
              result: {contract: {from: weights, by: keys, over: source_keys}}
  logits: {from: states, do: [linear: vocabulary]}
"""


def test_a_state_has_the_positions_of_another_input(tmp_path: Path) -> None:
    path = tmp_path / "covering.yaml"
    path.write_text(COVERING)
    module = TorchModule(load_spec(path).graph(), seed=2).eval()
    source, target = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), torch.tensor([[4, 5, 6], [7, 8, 9]])
    values = module.all_values(source, target)
    keys, start = values["states/keys"], values["states/start"]
    covered = torch.zeros(2, 4)
    for at in range(3):
        scores = (keys @ start[:, at, :, None])[..., 0] - covered
        weights = scores.masked_fill(source == 0, -torch.inf).softmax(-1)
        covered += weights
        torch.testing.assert_close(values["states/output"][:, at], (weights[:, None] @ keys)[:, 0])


@pytest.mark.parametrize("target", ["portable", "native", "cuda"])
def test_states_along_the_source_are_built(tmp_path: Path, target: Target) -> None:
    if target == "native":
        kernel_library()
    path = tmp_path / "covering.yaml"
    path.write_text(COVERING.replace("[embedding: d_model]}", "[embedding: d_model, gru]}", 1))
    assert build_engine(load_spec(path), None, None, target, tmp_path / "engine").passed


def test_backwards_the_padding_changes_nothing(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, "[rnn: {reverse: true}]")
    module = TorchModule(graph).eval()
    tokens = np.array([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
    with torch.no_grad():
        expected = module(torch.from_numpy(tokens)).numpy()
        alone = module(torch.from_numpy(tokens[:1, :3])).numpy()
    np.testing.assert_allclose(expected[:1, :3], alone, atol=1e-6)
    (found,) = run_onnx(graph, module, [tokens], tmp_path, target="portable")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(RuleError, match="from the last position to the first") as error:
        derive_step(graph, "text")
    assert error.value.place is not None


def test_what_needs_no_state_is_done_before(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, "[lstm]")
    linear = [node for node in recurrence(graph).body.nodes if node.op.kind == "linear"]
    assert len(linear) == 4, "the four of the hidden state; those of the input are outside"
    assert hoist(graph) == graph


def test_attention_in_a_cell_is_fused_and_its_keys_are_made_before(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(ATTENDING)
    graph = compile_spec(load_spec(tmp_path / "model.yaml"))
    body = recurrence(graph).body
    assert [node.op.kind for node in body.nodes if isinstance(node.op, Attention)] == ["attention"]
    assert not any(node.op.kind == "as_keys" for node in body.nodes)
    decoder = derive_step(graph)
    verify(decoder.prepare)
    verify(decoder.step)
    assert len(decoder.states) == 1 and decoder.states[0].initial is not None


ATTENDING = """\
task: translation
sizes: {d_model: 6, d_k: d_model, vocabulary: 20}
inputs: {source: {tokens: vocabulary}, target: {tokens: vocabulary}}
model:
  encoder: {from: source, do: [embedding: d_model, rnn]}
  summary: {from: encoder, do: [last]}
  decoder:
    from: target
    do:
      - embedding: d_model
      - recurrence:
          state: {hidden: d_model}
          start: summary
          cell:
            do:
              query: {linear: {from: hidden, to: d_k}}
              key: {linear: {from: encoder, to: d_k}}
              seen: {attend: {query: query, key: key, value: encoder}}
              input: {plus: {from: x, by: seen}}
              hidden: {mixture: {input: input, hidden: hidden, size: d_model}}
  logits: {from: decoder, do: [linear: vocabulary]}
"""

MISTAKES = {
    f"[recurrence: {{state: {{total: d_model}}, {SUM.replace('{do: {', '{do: {place: sinusoid, ')}}}]": "at a time",
    "[recurrence: {state: {total: d_model}, cell: {do: {other: relu}}}]": "the cell never updates its state 'total'",
    f"[recurrence: {{state: {{total: heads}}, {SUM}}}]": "the state 'total' is",
    "[recurrence: {state: {x: d_model}, cell: {do: {new: relu}}}]": "cannot be the name of a state",
    "[recurrence: {state: d_model, cell: {do: {new: relu}}}]": "must name states and their axes",
}


@pytest.mark.parametrize("steps", MISTAKES)
def test_mistakes_in_a_cell_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps, "heads: 2")
    assert any(MISTAKES[steps] in str(problem) for problem in error.value.problems)
