"""CTC: its loss, its decoding in ONNX against all alignments written out, and its errors."""

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from xformc.compiler.backends.onnx.emitter import Emitter, model
from xformc.compiler.backends.onnx.initializers import Initializers, save_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify.reference_ctc import decode
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.ctc import CtcLoss
from xformc.compiler.ops.masks import NEVER
from xformc.compiler.results import ctc
from xformc.compiler.results.kind import KINDS
from xformc.compiler.spec import SpecError, load_spec
from xformc.errors import UserError
from xformc.runtime.session import open_model

LOGITS = Type("float32", (Axis("batch"), Axis("frames"), Axis("tokens", 4)))


def loss(logits: torch.Tensor, tokens: list[list[int]]) -> tuple[torch.Tensor, ...]:
    builder = GraphBuilder("loss")
    values = builder.input("x", LOGITS), builder.input("y", Type("int64", (Axis("batch"), Axis("length"))))
    return TorchModule(builder.finish(builder.emit_all(CtcLoss(), values, "loss")))(logits, torch.tensor(tokens))


def labelling(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one for before, one in zip((0, *path), path, strict=False) if one not in (before, 0))


def probabilities(logits: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of each labelling: the sum over all paths of tokens [positions, tokens]."""
    each = torch.tensor(logits).double().softmax(-1).numpy()
    found: dict[tuple[int, ...], float] = {}
    for path in product(range(each.shape[1]), repeat=len(each)):
        key = labelling(path)
        found[key] = found.get(key, 0.0) + float(np.prod(each[np.arange(len(each)), path]))
    return found


def run(logits: np.ndarray, width: int, folder: Path) -> list[np.ndarray]:
    """The outputs of the kind for these logits, in ONNX Runtime."""
    emitter = Emitter(Initializers({}))
    type = Type("float32", (Axis("batch"), Axis("frames"), Axis("tokens", logits.shape[-1])))
    outputs = KINDS["ctc"].emit(emitter, "x", type, {"beam_size": width})
    named = [(emitter.op("Identity", name, name=f"y{index}"), type) for index, (name, type) in enumerate(outputs)]
    built = model(emitter, "decode", [("x", type)], named)
    onnx.checker.check_model(built, full_check=True)  # pyright: ignore[reportUnknownMemberType]
    save_model(built, Initializers({}), folder)
    return open_model(folder / "model.onnx", target="portable").run(None, {"x": logits})


def hypotheses(outputs: list[np.ndarray], row: int) -> list[tuple[tuple[int, ...], float]]:
    tokens, lengths, scores = (output[row] for output in outputs)
    return [
        (tuple(map(int, ids[:length])), float(score))
        for ids, length, score in zip(tokens, lengths, scores, strict=True)
    ]


def test_the_loss_is_minus_the_log_probability_of_all_alignments() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 4, requires_grad=True)
    mean, total, count = loss(logits, [[1, 1, 2], [3, 0, 0], [0, 0, 0]])
    found = [probabilities(row.detach().numpy()) for row in logits]
    wanted = -sum(np.log(p[key]) for p, key in zip(found, [(1, 1, 2), (3,), ()], strict=True))
    assert count == 4
    assert total.item() == pytest.approx(wanted, rel=1e-5)
    assert mean.item() == pytest.approx(wanted / 4, rel=1e-5)
    mean.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


def test_tokens_that_do_not_fit_the_positions_do_not_count() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[0, 2] = torch.tensor([0.0, NEVER, NEVER, NEVER])
    logits.requires_grad_()
    mean, total, count = loss(logits, [[1, 1, 1], [1, 2, 3]])
    assert count == 3 and total.item() == pytest.approx(3 * np.log(4), rel=1e-5)
    mean.backward()
    assert logits.grad is not None and not logits.grad[0].any() and torch.isfinite(logits.grad).all()
    mean, total, count = loss(logits[:1], [[1, 2, 3]])
    assert mean == total == count == 0


def test_padding_changes_no_loss() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 4, 4)
    padded = torch.cat([logits, torch.tensor([[[0.0, NEVER, NEVER, NEVER]]]).expand(1, 3, 4)], 1)
    torch.testing.assert_close(loss(padded, [[2, 2]]), loss(logits, [[2, 2]]))


def test_a_wide_beam_finds_the_probability_of_every_labelling(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).standard_normal((2, 4, 3), np.float32) * 2
    outputs = run(logits, 64, tmp_path)
    for row in range(2):
        wanted = sorted(probabilities(logits[row]).items(), key=lambda item: -item[1])
        found = hypotheses(outputs, row)
        assert [tokens for tokens, _ in found[: len(wanted)]] == [tokens for tokens, _ in wanted]
        np.testing.assert_allclose(np.exp([s for _, s in found[: len(wanted)]]), [p for _, p in wanted], atol=1e-6)
        assert all(one == ((), np.float32(NEVER)) for one in found[len(wanted) :])


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_decoding_is_the_reference(width: int, seed: int, tmp_path: Path) -> None:
    logits = np.random.default_rng(seed).standard_normal((4, 12, 4), np.float32) * 2
    outputs = run(logits, width, tmp_path)
    for row in range(4):
        wanted = decode(logits[row], width)
        assert wanted.margin < 1e-5 or [one for one, _ in hypotheses(outputs, row)] == [
            one for one, _ in wanted.hypotheses
        ]
        np.testing.assert_allclose(outputs[2][row], [score for _, score in wanted.hypotheses], rtol=1e-4)


def test_the_reference_search_is_wide_enough_to_be_exact() -> None:
    logits = np.random.default_rng(3).standard_normal((4, 3), np.float32)
    wanted = probabilities(logits)
    for tokens, score in decode(logits, 1000).hypotheses:
        assert np.exp(score) == pytest.approx(wanted[tokens], rel=1e-9)


@pytest.mark.parametrize("width", [1, 3])
def test_best_path_merges_repeats_and_keeps_those_that_a_blank_separates(width: int, tmp_path: Path) -> None:
    path = [[0, 2, 2, 0, 2, 1, 1], [0, 0, 0, 0, 0, 0, 0]]
    outputs = run(20 * np.eye(3, dtype=np.float32)[path], width, tmp_path)
    assert [hypotheses(outputs, row)[0][0] for row in range(2)] == [(2, 2, 1), ()]
    assert outputs[0].shape == (2, width, outputs[0].shape[2])


@pytest.mark.parametrize("width", [1, 4])
def test_padding_changes_no_hypothesis(width: int, tmp_path: Path) -> None:
    logits = np.random.default_rng(4).standard_normal((1, 2, 3), np.float32)
    padding = np.array([0.0, NEVER, NEVER], np.float32)
    together = np.concatenate([logits, np.broadcast_to(padding, (1, 5, 3))], 1)
    alone, padded = hypotheses(run(logits, width, tmp_path), 0), hypotheses(run(together, width, tmp_path), 0)
    assert [tokens for tokens, _ in alone] == [tokens for tokens, _ in padded]
    np.testing.assert_allclose([score for _, score in padded], [score for _, score in alone], rtol=1e-5)


SPEC = """\
sizes: {d_model: 8, features: 3, vocabulary: 6, words: 7}
inputs: {frames: {vectors: features}}
results: {letters: {ctc: logits, beam_size: 3}, speaker: {labels: who}}
model:
  states: {from: frames, do: [convolution: {width: 3, stride: 2, to: d_model}, tanh]}
  logits: {from: states, do: [linear: vocabulary]}
  who: {from: states, do: [mean, linear: words]}
"""
BESIDE_TEXT = """\
sizes: {d_model: 8, features: 3, vocabulary: 9}
inputs: {frames: {vectors: features}, text: {tokens: vocabulary}}
results: {text: {text: logits}, letters: {ctc: heard}}
model:
  states: {from: frames, do: [linear: d_model, tanh]}
  heard: {from: states, do: [linear: vocabulary]}
  memory: {from: states, do: [mean]}
  written: {from: text, do: [embedding: d_model, {gru_from: {start: memory}}]}
  logits: {from: written, do: [linear: vocabulary]}
decode: {beam_size: 2}
"""


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize(("text", "stages"), [
    (SPEC, ["forward", "results", "batch", "ctc"]),
    (BESIDE_TEXT, ["forward", "step", "scores", "greedy", "beam", "batch", "controls", "edits", "defaults", "results"]),
])  # fmt: skip
def test_engines_with_ctc_pass_their_certificates(text: str, stages: list[str], target: str, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(text)
    spec = load_spec(tmp_path / "model.yaml")
    certificate = build_engine(spec, None, None, target, tmp_path / "engine")  # pyright: ignore[reportArgumentType]
    assert certificate.passed and [stage.name for stage in certificate.stages] == stages


def test_a_wrong_search_fails_its_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = ctc.emit_prefix_search

    def worse_first(onnx: OnnxEmitter, logits: str, width: int) -> tuple[str, ...]:
        return tuple(onnx.op("Gather", name, [1, 0, 2], axis=1) for name in right(onnx, logits, width))

    (tmp_path / "model.yaml").write_text(SPEC)
    monkeypatch.setattr(ctc, "emit_prefix_search", worse_first)
    with pytest.raises(UserError, match="ctc"):
        build_engine(load_spec(tmp_path / "model.yaml"), None, None, "portable", tmp_path / "engine")


def test_ctc_needs_logits_of_positions(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(SPEC.replace("ctc: logits", "ctc: who"))
    message = "the stage of ctc must return float32\\[batch, frames, VOCABULARY\\]"
    with pytest.raises(SpecError, match=message):
        load_spec(tmp_path / "model.yaml").graph()
