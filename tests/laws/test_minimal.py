"""The smallest specs that ever broke a law, as regression tests."""

from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import run_onnx
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from tests.runtime.kernel_session import kernel_library
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.fuse import fuse_attention
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.lower import lower_decoder
from xformc.compiler.passes.step import derive_step, with_beam
from xformc.compiler.passes.tabulate import tabulate
from xformc.compiler.spec import SpecError, load_spec
from xformc.format.targets import Target
from xformc.runtime import load

ALONG_EDGES = """{mine: {argmax: d_model}, other: {linear: {from: x, to: d_model}}, its: {argmax: d_model},
  seen: as_keys, same: {equal: {from: mine, by: seen}}, keys: {as_keys: {from: x}},
  scores: {contract: {from: x, by: keys, over: d_model}}, masked: {mask: {causal: true, edges: same}},
  BETWEEN share: {softmax: keys}, output: {contract: {by: keys, over: keys}}}"""
SCORES = """{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, hidden: {mask: {causal: true}}, """
WEIGHED = """again: {mask: {causal: true}}, share: {softmax: keys}, output: {contract: {by: keys, over: keys}}}"""
STEPS = {
    "a sum over the keys of a window": """{keys: {as_keys: {window: window}},
  scores: {contract: {from: x, by: keys, over: d_model}}, seen: {mask: {causal: true}}, positive: exp,
  total: {sum: {over: keys}}, output: {times: {by: x}}}""",
    "two cells without a name": """[recurrence: {state: {sum: d_model}, cell: {do: {sum: {plus: {by: sum}}}}},
  recurrence: {state: {sum: d_model}, cell: {do: {sum: {plus: {by: sum}}}}}]""",
    "dropout in a cell": """[recurrence: {state: {sum: d_model}, cell: {do: {part: {dropout: 0.5},
  sum: {plus: {by: sum}}}}}]""",
    "a map of weights without a bias": """{keys: as_keys, query: {linear: {from: x, to: [heads, d_model]}},
  scores: {contract: {by: keys, over: d_model}}, seen: {mask: {causal: true}}, weights: {softmax: keys},
  talked: {linear: {over: heads, to: heads, bias: false}}, mixed: {contract: {by: keys, over: keys}},
  output: {linear: {over: [heads, d_model], to: d_model}}}""",
    "a factor after the mask": """{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}},
  seen: {mask: {causal: true}}, small: {scale: 1 / sqrt(d_model)}, weights: relu,
  output: {contract: {by: keys, over: keys}}}""",
    "the best keys": """{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}},
  seen: {mask: {causal: true}}, best: {keep_top: {count: 4, over: keys}}, weights: {softmax: keys},
  output: {contract: {by: keys, over: keys}}}""",
    "the best keys along edges": ALONG_EDGES.replace("BETWEEN", "best: {keep_top: {count: 2, over: keys}},"),
    "a recurrence over positions alone": """{places: {learned_positions: limit}, seen: gru,
  start: {first: {from: places}}, both: {plus: {from: seen, by: start}}, output: {plus: {by: x}}}""",
    "one number for all": """{a: {weight: d_model}, b: {weight: {from: x, axes: d_model}},
  share: {contract: {from: a, by: b, over: d_model}}, output: {times: {from: x, by: share}}}""",
    "the first position": "{start: first, output: {plus: {by: x}}}",
    "an axis called recent": """{inner: {linear: recent}, seen: {convolution: {width: 3, causal: true}},
  output: {linear: d_model}}""",
    "axes called past_3 and text_keys_3": """{query: {linear: [past_3, text_keys_3]}, keys: {as_keys: {window: 3}},
  scores: {contract: {by: query, over: past_3}}, seen: {mask: {causal: true}}, weights: {softmax: keys},
  mixed: {contract: {by: keys, over: keys}}, output: {linear: {over: [past_3, text_keys_3], to: d_model}}}""",
    "a sum of gates between a key and its query": SCORES
    + """gates: sigmoid, place: {cumulative_sum: {over: keys, reverse: true}}, scored: {plus: {by: scores}}, """
    + WEIGHED,
    "a sum of gates up to a key": SCORES
    + "gates: sigmoid, place: {cumulative_sum: keys}, scored: {plus: {by: scores}}, "
    + WEIGHED,
    "a stick that is broken from its end": SCORES
    + """taken: sigmoid, left: {softplus: {from: hidden}}, whole: {cumulative_sum: {over: keys, reverse: true}},
  later: {minus: {by: left}}, less: {scale: -1}, rest: exp, weights: {times: taken},
  output: {contract: {by: keys, over: keys}}}""",
    "weights that earlier queries take away": SCORES
    + """taken: relu, before: {shift_positions: 2}, sums: cumulative_sum, scored: {minus: {from: scores, by: sums}}, """
    + WEIGHED,
    "a convolution of weights over queries and keys": SCORES
    + """taken: softmax, near: {convolution: {width: 3, over: [text, keys], causal: true, to: heads}},
  scored: {sum: {over: heads}}, """
    + WEIGHED,
    "a convolution of weights over queries": SCORES
    + """taken: exp, wide: {weight: {from: taken, axes: heads}}, each: {times: taken},
  last: {linear: {over: heads, to: heads, bias: false}}, near: {convolution: {width: 3, over: text, causal: true}},
  scored: {sum: {over: heads}}, """
    + WEIGHED,
    "a convolution of scores over queries": SCORES.replace("hidden: {mask: {causal: true}}, ", "")
    + """shown: {mask_to_zero: {from: scores}}, near: {convolution: {width: 3, over: text, causal: true, to: heads}},
  scored: {sum: {over: heads}}, """
    + WEIGHED,
    "the weights of the first query": SCORES
    + "weights: softmax, begun: {first: {over: text}}, scored: {plus: scores}, "
    + WEIGHED,
    "edges that may lead to nothing, fused": ALONG_EDGES.replace("BETWEEN", ""),
    "edges that may lead to nothing": ALONG_EDGES.replace("BETWEEN", "more: {shift: 1},"),
}
EDGES = """\
task: tagging
sizes: {d_model: 6, vocabulary: 20, labels: 3}
inputs: {text: {tokens: vocabulary}, links: {edges: text}}
model:
  start: {from: text, do: [embedding: d_model]}
  body:
    from: start
    do:
      keys: as_keys
      scores: {contract: {from: x, by: keys, over: d_model}}
      masked: {mask: {edges: links}}
      BETWEEN
      share: {softmax: keys}
      output: {contract: {by: keys, over: keys}}
  result: {from: body, do: [linear: labels]}
"""
STAGES = """\
task: translation
sizes: {d_model: 8, heads: 2, d_k: 4, d_v: 4, vocabulary: 20}
inputs: {source: {tokens: vocabulary}, target: {tokens: vocabulary}}
model:
  encoder: {from: source, do: [embedding: d_model]}
  NAME: {from: encoder, do: [mean]}
  decoder:
    from: target
    do: {start: {embedding: d_model}, near: causal_self_attention, sum: {plus: NAME}, far: {cross_attention: encoder}}
  logits: {from: decoder, do: [linear: vocabulary]}
"""
SUMMED = """\
sizes: {d_model: 6, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
results: {size: {numbers: size}}
model:
  start: {from: text, do: [embedding: d_model]}
  size: {from: start, do: [mean]}
"""


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    steps = " ".join(STEPS[name].split())
    sizes = {"window": 3, "heads": 2, "limit": 300, "recent": 5, "past_3": 2, "text_keys_3": 4}
    used = ", ".join(f"{name}: {size}" for name, size in sizes.items() if f" {name}" in steps or f"[{name}" in steps)
    graph = language_graph(tmp_path, steps, used)
    assert_steps_are_the_training_form(graph, tmp_path)


EXPOSED = {
    "small: {scale: 0.001}, weights: relu": "scale",
    "weights: {softmax: keys}, more: {shift: 1}": "shift",
    "weights: tanh": "unary",
    "weights: {mean: {over: keys}}": "reduce",
    "place: {cumulative_sum: keys}, again: {mask: {causal: true}}, weights: {softmax: keys}": "cumulative_sum",
}


@pytest.mark.parametrize("steps", EXPOSED)
def test_what_undoes_a_mask_is_named(tmp_path: Path, steps: str) -> None:
    before = "keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, seen: {mask: {causal: true}}"
    end = "{plus: {by: x}}" if "mean" in steps else "{contract: {by: keys, over: keys}}"
    graph = language_graph(tmp_path, f"{{{before}, {steps}, output: {end}}}")
    with pytest.raises(RuleError, match="every position sees the ones after it") as error:
        derive_step(inference(graph), "text")
    assert error.value.hint is not None
    sees = "what " if EXPOSED[steps] == "cumulative_sum" else ""
    assert error.value.hint.startswith(f"the mask is causal, but {sees}'{EXPOSED[steps]}'")


@pytest.mark.parametrize("name", ["position", "places", "slots", "ancestors"])
def test_a_stage_may_have_the_name_of_an_input_of_the_step(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.yaml").write_text(STAGES.replace("NAME", name))
    graph = fuse_attention(inference(load_spec(tmp_path / "model.yaml").graph()), arranged=False)
    for fixed in (False, True):
        decoder = derive_step(graph, "target", fixed=fixed)
        assert name in {value.name for value in decoder.constants}
        verify(decoder.step)
    lowered = lower_decoder(tabulate(with_beam(derive_step(graph, "target"))), lambda name: "float32")
    verify(lowered.step)
    assert lowered.resident is not None


def test_a_state_that_would_grow_is_refused(tmp_path: Path) -> None:
    steps = "{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, sums: cumulative_sum, "
    steps += "seen: {mask: {causal: true}}, weights: relu, output: {contract: {by: keys, over: keys}}}"
    with pytest.raises(RuleError, match="its state has the axis text_keys, which grows with each step") as error:
        derive_step(inference(language_graph(tmp_path, steps)), "text")
    assert error.value.place is not None and "sigmoid, relu, exp and mask_to_zero of masked scores are zero" in str(
        error.value
    )
    window = SCORES.replace("as_keys", "{as_keys: {window: 3}}")
    with pytest.raises(RuleError, match="of which a window is left in each step"):
        derive_step(
            inference(language_graph(tmp_path, f"{window}taken: relu, sums: cumulative_sum, {WEIGHED}")), "text"
        )
    steps = (
        "taken: relu, sums: {cumulative_sum: {over: keys, reverse: true}}, output: {contract: {by: keys, over: keys}}}"
    )
    with pytest.raises(RuleError, match="every position sees the ones after it"):  # or those before its window
        derive_step(inference(language_graph(tmp_path, f"{window}{steps}")), "text")


SINKS = """\
extends: gpt
sizes: {layers: 2, d_model: 16, d_ff: 16, heads: 2, vocabulary: 60, max_positions: 30}
train: {max_length: 30}
blocks:
  normalizer:
    doc: Softmax with a sink, written out. It is not finite where all keys are padding.
    do:
      most: {max: {over: keys}}
      apart: {minus: {from: x, by: most}}
      grown: exp
      total: {sum: {over: keys}}
      sink: {scale: {from: most, factor: -1}}
      extra: exp
      all: {plus: total}
      weights: {divide: {from: grown, by: all}}
"""


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_what_was_read_of_padding_does_not_reach_a_text_that_joins(tmp_path: Path, target: Target) -> None:
    (tmp_path / "model.yaml").write_text(SINKS)
    built = build_engine(load_spec(tmp_path / "model.yaml"), None, None, target, tmp_path / "engine")
    assert "refill" in [stage.name for stage in built.stages]


@pytest.mark.parametrize("target", ["portable", "native", "cuda"])
@pytest.mark.parametrize("steps", ["cumulative_sum", "{shift_positions: 2}", "{first: {over: positions}}"])
def test_states_along_the_source_are_built(tmp_path: Path, target: Target, steps: str) -> None:
    if target == "native":
        kernel_library()
    (tmp_path / "model.yaml").write_text(COVERED.replace("STEPS", steps))
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, target, tmp_path / "engine").passed


@pytest.mark.parametrize("target", ["portable", "native", "cuda"])
@pytest.mark.parametrize("task", ["language_model", "translation"])
def test_states_of_keys_are_built(tmp_path: Path, target: Target, task: str) -> None:
    """Drafts, batches that refill, prompts and beams move what each key has."""
    if target == "native":
        kernel_library()
    name = "text" if task == "language_model" else "target"
    text = REMEMBERING.replace("TASK", task).replace("NAME", name)
    if task == "translation":
        text = text.replace("{text:", "{source: {tokens: vocabulary}, target:").replace("start: {from", MEMORY)
        text = text.replace("[embedding: d_model]}\n  body", "[embedding: d_model, {plus: memory}]}\n  body")
    (tmp_path / "model.yaml").write_text(text)
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, target, tmp_path / "engine").passed


def test_a_model_without_states_is_built(tmp_path: Path) -> None:
    text = "task: language_model\nsizes: {d_model: 6, vocabulary: 20}\ninputs: {text: {tokens: vocabulary}}\n"
    text += "model: {logits: {from: text, do: [embedding: d_model, linear: vocabulary]}}\n"
    (tmp_path / "model.yaml").write_text(text)
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, "portable", tmp_path / "engine").passed


REMEMBERING = """\
task: TASK
sizes: {d_model: 8, vocabulary: 20, heads: 2, d_k: 4}
inputs: {text: {tokens: vocabulary}}
blocks:
  remembering:
    do:
      query: {linear: [heads, d_k]}
      keys: {as_keys: {from: query}}
      scores: {contract: {from: query, by: keys, over: d_k}}
      seen: {mask: {causal: true}}
      taken: {softmax: keys}
      mixed: {linear: {over: heads, to: heads, bias: false}}
      near: {convolution: {width: 3, over: [NAME, keys], causal: true, depthwise: true}}
      before: {shift_positions: {from: taken, by: 1}}
      sums: cumulative_sum
      open: {sigmoid: {from: seen}}
      place: {cumulative_sum: {over: keys, reverse: true}}
      rate: {weight: {initial: 0.5}}
      far: {times: place}
      together: [{plus: near}, {minus: sums}, {plus: scores}]
      again: {mask: {causal: true}}
      weights: {softmax: keys}
      result: {contract: {by: keys, over: keys}}
      output: {linear: {over: [heads, d_k], to: d_model}}
model:
  start: {from: NAME, do: [embedding: d_model]}
  body: {from: start, do: [{name: one, residual: remembering}, {name: two, residual: remembering}]}
  logits: {from: body, do: [linear: vocabulary]}
"""
MEMORY = "memory: {from: source, do: [embedding: d_model, mean]}\n  start: {from"
COVERED = """\
task: translation
sizes: {d_model: 8, vocabulary: 20}
inputs: {source: {tokens: vocabulary}, target: {tokens: vocabulary}}
model:
  memory: {from: source, do: [embedding: d_model]}
  states:
    from: target
    do:
      start: {embedding: d_model}
      keys: {as_keys: {from: memory}}
      scores: {contract: {from: start, by: keys, over: d_model}}
      seen: mask
      weights: {softmax: keys}
      covered: STEPS
      part: {scale: -0.5}
      scored: {plus: scores}
      masked: mask
      share: {softmax: keys}
      output: {contract: {by: keys, over: keys}}
  logits: {from: states, do: [linear: vocabulary]}
"""
WINDOW = """\
task: language_model
sizes: {d_model: 8, vocabulary: 20, heads: 2, d_k: 4, d_v: 4, window: 3}
choices: {key_value_heads: one, reach: window}
inputs: {text: {tokens: vocabulary}}
model:
  states: {from: text, do: [embedding: d_model, causal_self_attention]}
  logits: {from: states, do: [linear: vocabulary]}
"""


def test_a_window_reads_several_tokens_with_one_head_of_keys(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(WINDOW)
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, "portable", tmp_path / "engine").passed


def test_two_layers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, "[gru, gru]")
    (problem,) = error.value.problems
    assert problem.message == "two parameters would be called 'body/gru/hidden/update/mixture/new/weight'"
    assert (
        problem.hint == "name one of the steps, as in {name: second, BLOCK: ..}, or all of them by a mapping under 'do'"
    )


def test_weights_over_positions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, "[sum: {over: d_model}]")
    (problem,) = error.value.problems
    assert problem.message == "its weights need the size of text, which is known only at run time"
    assert problem.span.place.endswith("model.yaml:7:29")


@pytest.mark.parametrize("between", ["", "more: {shift: 1}"], ids=["fused", "written"])
def test_a_node_without_edges_sees_no_padding(tmp_path: Path, between: str) -> None:
    (tmp_path / "model.yaml").write_text(EDGES.replace("BETWEEN", between))
    graph = compile_spec(load_spec(tmp_path / "model.yaml"))
    module = TorchModule(graph, seed=3).eval()
    tokens, links = np.array([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11]]), np.eye(5, dtype=np.bool_)[None].repeat(2, 0)
    links[:, 1] = False
    with torch.no_grad():
        alone = module(torch.tensor(tokens[:1, :3]), torch.tensor(links[:1, :3, :3])).numpy()
        together = module(torch.tensor(tokens), torch.tensor(links)).numpy()
    np.testing.assert_allclose(together[:1, :3], alone, atol=1e-6)
    for target in ("portable", "cpu"):
        (found,) = run_onnx(graph, module, [tokens, links], tmp_path, target=target)
        np.testing.assert_allclose(found[0, :3], alone[0], atol=1e-5)


def test_a_mean_of_positions_is_the_same_to_the_bit_in_any_batch(tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "model.yaml").write_text(SUMMED)
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, "native", tmp_path / "engine").passed
    random = np.random.default_rng(0)
    rows = [{"text": random.integers(4, 20, length)} for length in (1, 3, 7, 12, 40)]
    with load(tmp_path / "engine", threads=1) as engine:
        for row, together in zip(rows, engine.predict_rows(rows), strict=True):
            alone = engine.predict_rows([row])[0].results["size"]
            assert alone.tobytes() == together.results["size"].tobytes()


@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_a_softmax_over_positions_sees_no_padding(tmp_path: Path, task: str) -> None:
    end = "sum: {plus: {by: x}}" if task == "tagging" else "active: tanh"
    steps = f"{{share: {{softmax: positions}}, pooled: {{contract: {{by: x, over: positions}}}}, {end}}}"
    assert_padding_does_not_matter(tagging_graph(tmp_path, steps, task=task), tmp_path)
