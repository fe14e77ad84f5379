"""Attention that is written out becomes one op with the same numbers; similar graphs are left alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.softmax import Softmax
from xformc.compiler.passes.fuse import fuse_attention
from xformc.compiler.spec import load_spec

SPEC = """\
task: tagging
sizes: {d_model: 8, heads: 2, d_k: 3, d_v: 5, vocabulary: 20, labels: 4}
inputs: {text: {tokens: vocabulary}, links: {edges: text}}
model:
  embedded: {from: text, do: [embedding: d_model]}
  attended:
    from: embedded
    do:
      query: {linear: [heads, d_k]}
      key: {linear: {from: x, to: [heads, d_k]}}
      value: {linear: {from: x, to: [heads, d_v]}}
      keys: {as_keys: {from: key}}
      values: {as_keys: {from: value}}
      %s
      output: {linear: {over: [heads, d_v], to: d_model}}
  result: {from: attended, do: [linear: labels]}
"""
PLAIN = """\
scores: {contract: {from: query, by: keys, over: d_k}}
scaled: {scale: 0.5}
seen: {mask: {edges: links}}
weights: {softmax: keys}
mixed: {contract: {by: values, over: keys}}"""

FUSED = {
    "plain": (PLAIN, {"scale": 0.5, "masks": 2}),
    "keys before queries": (PLAIN.replace("{from: query, by: keys", "{from: keys, by: query"), {"scale": 0.5}),
    "values before weights": (PLAIN.replace("{by: values", "{from: values, by: weights"), {"masks": 2}),
    "scaled after the mask": (PLAIN.replace("scaled: {scale: 0.5}\n", "") + "", {"scale": 1.0}),
    "with a bias": (
        PLAIN.replace("seen:", "bias: {weight: heads}\nbiased: {plus: {from: scaled, by: bias}}\nseen:"),
        {"masks": 2, "scale": 0.5},
    ),
    "with dropout": (PLAIN.replace("mixed:", "dropped: {dropout: 0.5}\nmixed:"), {"dropout": 0.5}),
}
LEFT = {
    "weights are used twice": PLAIN + "\nagain: {contract: {from: weights, by: values, over: keys}}\n"
    "both: {plus: {from: mixed, by: again}}",
    "a bias that is scaled": PLAIN.replace(
        "scaled:", "bias: {weight: heads}\nbiased: {plus: {from: scores, by: bias}}\nscaled:"
    ),
    "edges are given twice": PLAIN.replace("weights:", "again: {mask: {edges: links}}\nweights:"),
    "a factor of zero": PLAIN.replace("0.5", "0"),
    "a negative factor": PLAIN.replace("0.5", "-0.5"),
    "a factor that weakens the mask": PLAIN.replace("scaled: {scale: 0.5}\n", "").replace(
        "weights:", "scaled: {scale: 1.0e-8}\nweights:"
    ),
    "weights by relu": PLAIN.replace("{softmax: keys}", "relu"),
    "softmax over the heads": PLAIN.replace("{softmax: keys}", "{softmax: heads}"),
}


def written(folder: Path, steps: str) -> Graph:
    path = folder / "model.yaml"
    path.write_text(SPEC % steps.replace("\n", "\n      "))
    return verify(load_spec(path).graph())


def results(graph: Graph) -> np.ndarray:
    random = np.random.default_rng(0)
    tokens = random.integers(4, 20, (3, 5))
    tokens[1, 3:] = 0
    links = random.random((3, 5, 5)) < 0.7
    with torch.no_grad():
        return TorchModule(graph, seed=2).eval()(torch.tensor(tokens), torch.tensor(links)).numpy()


def kinds(graph: Graph, kind: type) -> list[object]:
    return [node.op for node in graph.nodes if isinstance(node.op, kind)]


@pytest.mark.parametrize("name", FUSED)
def test_written_attention_becomes_one_op(tmp_path: Path, name: str) -> None:
    steps, fields = FUSED[name]
    graph = written(tmp_path, steps)
    fused = verify(fuse_attention(graph))
    (op,) = kinds(fused, Attention)
    assert {key: getattr(op, key) for key in fields} == fields
    assert not kinds(fused, Softmax) and not kinds(fused, Contract)
    assert {p.name for p in fused.parameters} == {p.name for p in graph.parameters}
    np.testing.assert_allclose(results(fused), results(graph), atol=1e-6)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_attention_stays(tmp_path: Path, name: str) -> None:
    graph = written(tmp_path, LEFT[name])
    fused = verify(fuse_attention(graph))
    assert not kinds(fused, Attention)
    np.testing.assert_array_equal(results(fused), results(graph))


def test_capped_scores_are_fused_and_the_same(tmp_path: Path) -> None:
    steps = "{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, small: {scale: 0.5}, SOFT, "
    steps += "seen: {mask: {causal: true}}, weights: {softmax: keys}, mixed: {contract: {by: keys, over: keys}}}"
    graph = language_graph(tmp_path, steps.replace("SOFT", "bounded: {soft_cap: 2}"))
    fused = fuse_attention(graph)
    (op,) = (node.op for node in fused.nodes if isinstance(node.op, Attention))
    assert (op.cap, op.scale, op.causal) == (2.0, 0.25, True)
    tokens = torch.randint(4, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(TorchModule(fused)(tokens), TorchModule(graph)(tokens))
    assert_steps_are_the_training_form(fused, tmp_path)
    for other in (
        "a: tanh, b: {scale: 2}, c: tanh",
        "a: {scale: 0}, b: tanh, c: {scale: 0}",
        "a: tanh, b: {shift: 1}, c: tanh",
    ):
        graph = language_graph(tmp_path, steps.replace("SOFT", other))
        assert not any(isinstance(node.op, Attention) for node in fuse_attention(graph).nodes)
