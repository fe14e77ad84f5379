"""Unusual attention that is right passes its certificate; where later keys would count, its place is named."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.graph.rules import RuleError, hidden
from xformc.compiler.pipeline import compile_engine, compile_training
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.targets import Target

GPT = """\
extends: gpt
sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 40, max_positions: 64, dropout: 0.0}
train: {max_length: 64}
blocks:
  causal_self_attention:
    do: {
      query: {linear: [heads, d_k]},
      key: {linear: {from: x, to: [heads, d_k]}},
      value: {linear: {from: x, to: [heads, d_v]}},
      keys: {as_keys: {from: key, window: 3}},
      values: {as_keys: {from: value, window: 3}},
      scores: {contract: {from: query, by: keys, over: d_k}},
      STEPS,
      output: {linear: {over: [heads, d_v], to: d_model}}}
"""
MIXED = ", mixed: {contract: {by: values, over: keys}}"
RIGHT = {
    "a negative factor": "scaled: {scale: -1}, seen: {mask: {causal: true}}, weights: {softmax: keys}" + MIXED,
    "a factor of zero": "scaled: {scale: 0}, seen: {mask: {causal: true}}, weights: {softmax: keys}" + MIXED,
    "weights made by hand": "seen: {mask: {causal: true}}, powers: exp, total: {sum: keys}, "
    "weights: {divide: {from: powers, by: total}}" + MIXED,
}
LEAKING = {
    "masked scores from masked scores": "seen: {mask: {causal: true}}, other: {scale: -1}, "
    "sum: {plus: {from: seen, by: other}}, weights: {softmax: keys}" + MIXED,
    "a bias as large as the mask": "seen: {mask: {causal: true}}, other: {scale: {from: seen, factor: -1}}, "
    "both: {plus: {from: scores, by: other}}, hidden: {mask: {causal: true}}, less: {plus: {from: hidden, by: other}}, "
    "weights: {softmax: keys}" + MIXED,
    "a faint mask beside missing edges": "mine: {linear: {from: x, to: d_ff}}, best: {argmax: d_ff}, "
    "its: {linear: {from: x, to: d_ff}}, top: {argmax: d_ff}, other: {as_keys: {from: top, window: 3}}, "
    "same: {equal: {from: best, by: other}}, edges: {where: {from: scores, condition: same, otherwise: -1.0e9}}, "
    "seen: {mask: {from: scores, causal: true}}, faint: {scale: 0.01}, both: {plus: {by: edges}}, "
    "weights: {softmax: keys}" + MIXED,
    "an infinite weight": "seen: {mask: {causal: true}}, other: {scale: -1}, powers: exp, "
    "shares: {softmax: {from: seen, over: keys}}, weights: {times: {from: shares, by: powers}}" + MIXED,
    "a mask of other keys": "seen: {mask: {causal: true}}, all: {as_keys: {from: key}}, "
    "more: {contract: {from: query, by: all, over: d_k}}, both: {plus: {from: seen, by: more}}, "
    "weights: {softmax: text_keys}, whole: {as_keys: {from: value}}, "
    "far: {contract: {from: weights, by: whole, over: text_keys}}, near: {times: {by: values}}, mixed: {sum: keys}",
}
PLACES = """\
extends: transformer_base
sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 40, max_positions: 64, d_place: 4}
train: {max_length: 64}
blocks:
  causal_self_attention:
    do:
      key: {linear: d_model}
      value: {linear: {from: x, to: d_model}}
      keys: {as_keys: {from: key}}
      values: {as_keys: {from: value}}
      here: {learned_positions: {from: x, limit: max_positions, to: d_place}}
      there: {learned_positions: {from: x, limit: max_positions, to: d_place}}
      places: {as_keys: {from: there}}
      near: {contract: {from: here, by: places, over: d_place}}
      scores: {plus: {from: near, by: keys}}
      seen: {mask: {causal: true}}
      weights: {softmax: keys}
      mixed: {contract: {by: values, over: keys}}
      output: {linear: d_model}
"""


def _spec(folder: Path, text: str, steps: str = "") -> Spec:
    (folder / "model.yaml").write_text(text.replace("STEPS", steps), encoding="utf-8")
    return load_spec(folder / "model.yaml")


@pytest.mark.parametrize("name", RIGHT)
def test_attention_is_built(tmp_path: Path, name: str) -> None:
    assert build_engine(_spec(tmp_path, GPT, RIGHT[name]), None, None, "portable", tmp_path / "engine").passed


def test_weights_made_by_hand_have_finite_gradients_with_padding(tmp_path: Path) -> None:
    program = compile_training(_spec(tmp_path, GPT, RIGHT["weights made by hand"]))
    module, random = TorchModule(program.graph), np.random.default_rng(0)
    text, labels = (torch.from_numpy(random.integers(4, 40, (2, 12))) for _ in range(2))
    text[0, 3:], labels[0, 3:] = 0, 0
    module(text, labels)[0].backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("name", LEAKING)
def test_later_keys_that_would_count_are_refused_at_their_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(RuleError, match="every position sees the ones after it") as error:
        compile_engine(_spec(tmp_path, GPT, LEAKING[name]))
    assert error.value.place is not None and "model.yaml:" in error.value.place


@pytest.mark.parametrize("target", ["portable", "native", "cuda"])
def test_keys_of_positions_are_the_same_for_all_hypotheses(tmp_path: Path, target: Target) -> None:
    if target == "native":
        kernel_library()
    assert build_engine(_spec(tmp_path, PLACES), None, None, target, tmp_path / "engine").passed


def test_an_unsound_rule_fails_the_certificate_though_a_gate_is_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("scale", "add"):
        monkeypatch.setitem(hidden._entries, kind, lambda op, node, inputs, keys: "masked")
    steps = LEAKING["masked scores from masked scores"] + ", gate: {scale: 0}"
    with pytest.raises(UserError, match=r"FAIL step .* depends on later positions: contract -> .*/mixed"):
        build_engine(_spec(tmp_path, GPT, steps), None, None, "portable", tmp_path / "engine")
