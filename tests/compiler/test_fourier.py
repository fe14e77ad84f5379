"""Fourier transforms by blocks are those of NumPy, beside padding too, in PyTorch and in ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import run_onnx

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.share import share
from xformc.compiler.spec import load_spec

SPEC = """\
task: tagging
sizes: {d_model: SIZE, frequencies: COUNT, features: d_model}
inputs: {frames: {vectors: features}}
model:
  start: {from: frames, do: {same: {merge: {axes: [features], to: d_model}}}}
  STAGES
  logits: {from: mixed, do: {gain: {weight: {axes: AXIS, initial: one}}, all: {times: mixed}}}
"""
MIXED = "angles: {from: start, do: [position_angles]}\n  mixed: {from: start, do: [fourier_mixing: angles]}"


def check(folder: Path, text: str, frames: np.ndarray, expected: np.ndarray) -> None:
    """The model of these frames gives this, within 2e-6 of the largest number, in PyTorch and ONNX Runtime."""
    (folder / "model.yaml").write_text(text)
    graph = share(inference(compile_spec(load_spec(folder / "model.yaml"))))
    module = TorchModule(graph).eval()
    mask = (frames != 0).any(-1)
    inputs = [frames.astype(np.float32), *([mask] if len(graph.inputs) == 2 else [])]
    with torch.no_grad():
        results = [module(*map(torch.from_numpy, inputs)).numpy()]
    results += [run_onnx(graph, module, inputs, folder, target=target)[0] for target in ("portable", "cpu")]
    for found in results:
        np.testing.assert_allclose(found[mask], expected[mask], rtol=0, atol=2e-6 * np.abs(expected[mask]).max())


@pytest.mark.parametrize("length", [1, 7, 300])
def test_mixing_is_the_transform_of_each_example(tmp_path: Path, length: int) -> None:
    frames = np.random.default_rng(0).standard_normal((3, length, 12))
    real = (length, max(1, length - 3), max(1, length // 2))
    expected = np.zeros(frames.shape)
    for row, count in enumerate(real):
        frames[row, count:] = 0
        expected[row, :count] = np.fft.fft2(frames[row, :count]).real
    text = SPEC.replace("SIZE", "12").replace("COUNT", "d_model").replace("STAGES", MIXED).replace("AXIS", "d_model")
    check(tmp_path, text, frames, expected)


@pytest.mark.parametrize("part", ["real", "imaginary"])
def test_an_axis_is_transformed_to_its_first_frequencies(tmp_path: Path, part: str) -> None:
    frames = np.random.default_rng(0).standard_normal((2, 5, 400))
    expected = np.fft.rfft(frames)
    stage = f"mixed: {{from: start, do: [fourier_{part}: {{over: d_model, to: frequencies}}]}}"
    text = SPEC.replace("SIZE", "400").replace("COUNT", "1 + d_model / 2").replace("STAGES", stage)
    check(tmp_path, text.replace("AXIS", "frequencies"), frames, getattr(expected, part[:4]))
