"""A model of frames that transcribes them by CTC, from data to the text of its engine."""

from pathlib import Path

import numpy as np
import pytest

from xformc.compiler.certify import verify_engine
from xformc.compiler.spec import load_spec
from xformc.runtime import load
from xformc.runtime.checks.self_check import check_engine
from xformc.trainer.build_run import BuildOptions, build_run
from xformc.trainer.train import train

pytestmark = pytest.mark.processor

SPEC = """\
sizes: {d_model: 24, features: 8, vocabulary: 12}
inputs: {frames: {vectors: features}}
results: {letters: {ctc: logits, beam_size: 4}}
model:
  states: {from: frames, do: [convolution: {width: 3, stride: 2, to: d_model}, relu, {linear: d_model}, relu]}
  logits: {from: states, do: [linear: vocabulary]}
train:
  label_smoothing: 0.0
  schedule: {peak: 0.02, warmup_steps: 20, decay: linear}
  batch_tokens: 1200
  steps: 250
  checkpoint: {every_steps: 250, every_minutes: null}
  average: 1
  tokenizer: {kind: char}
"""
LETTERS = "abcdef"


def say(text: str, random: np.random.Generator) -> np.ndarray:
    """Noisy frames of a text: a signal that it begins, and some frames and a pause for each letter."""
    rows = [np.tile(np.eye(8, dtype=np.float32)[7], (2, 1))]
    for letter in text:
        sound = np.eye(8, dtype=np.float32)[LETTERS.index(letter)]
        rows += [np.tile(sound, (int(random.integers(4, 7)), 1)), np.zeros((2, 8), np.float32)]
    frames = np.concatenate(rows)
    return frames + 0.1 * random.standard_normal(frames.shape, np.float32)


def write(folder: Path, name: str, texts: list[str], random: np.random.Generator) -> None:
    rows = [say(text, random) for text in texts]
    lengths = np.array([len(row) for row in rows])
    frames = np.zeros((len(rows), lengths.max(), 8), np.float32)
    for index, row in enumerate(rows):
        frames[index, : len(row)] = row
    np.savez(folder / f"{name}.npz", frames=frames, frames_lengths=lengths, letters=np.array(texts))


def test_frames_are_transcribed(tmp_path: Path) -> None:
    random, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    for name, count in (("train", 300), ("valid", 30)):
        texts = ["".join(random.choice(list(LETTERS), random.integers(1, 6))) for _ in range(count)]
        write(folder, name, texts, random)
    (tmp_path / "model.yaml").write_text(SPEC)
    result = train(load_spec(tmp_path / "model.yaml"), folder, tmp_path / "run")
    assert (result.scores["letters_cer"].value or 0) < 0.03
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    certificate = build_run(spec, tmp_path / "run", tmp_path / "engine", BuildOptions("cpu"))
    assert [stage.name for stage in certificate.stages] == ["forward", "ctc"]
    assert verify_engine(tmp_path / "engine").passed
    assert check_engine(tmp_path / "engine")[0].passed
    with load(tmp_path / "engine", threads=1) as engine:
        rows = [say("faab", random), say("c", random), np.zeros((0, 8), np.float32)]
        found = [one.results["letters"] for one in engine.predict_rows([{"frames": row} for row in rows])]
        assert [one.text for one in found] == ["faab", "c", ""]
        assert found[0].hypotheses[0].text == "faab" and len(found[0].hypotheses) == 4
        assert found[0].score > found[0].hypotheses[1].score
