"""The front end of speech in the graph gives what numpy and PyTorch compute on their own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.runtime import load
from xformc.runtime.media.wav import cut

Samples = NDArray[np.float32]

SPEC = """\
sizes: {sample_rate: RATE, hop: HOP, window: 2.5 * hop, bins: 1 + window / 2, mels: MELS}
inputs: {wave: {vectors: hop, rate: sample_rate}}
results: {energies: {numbers: scaled}}
model:
  energies: {from: wave, do: [log_mel]}
  scaled: {from: energies, do: {gain: {weight: {axes: mels, initial: one}}, scaled: {times: energies}}}
train: {schedule: {peak: 0.001}}
"""  # every model has a parameter; this one is 1


def spec(folder: Path, rate: int, mels: int) -> Spec:
    path = folder / "mel.yaml"
    text = SPEC.replace("RATE", str(rate)).replace("HOP", str(rate // 100)).replace("MELS", str(mels))
    path.write_text(text)
    return load_spec(path)


def sound(rate: int, seconds: float) -> Samples:
    random = np.random.default_rng(3)
    time = np.arange(int(rate * seconds)) / rate
    wave = 0.3 * np.sin(2 * np.pi * (300 * time + 600 * time**2)) + 1e-4 * random.normal(size=len(time))
    return wave.astype(np.float32)


def expected(samples: Samples, rate: int, mels: int) -> NDArray[np.float64]:
    """Log mel energies by `torch.stft`, in float64, with the mel bands as in Slaney's Auditory Toolbox."""
    hop, window = rate // 100, rate // 40
    padded = np.zeros(-(-len(samples) // hop) * hop + window - hop)
    padded[(window - hop) // 2 :][: len(samples)] = samples
    hann = torch.hann_window(window, dtype=torch.float64)
    wave = torch.from_numpy(padded)
    spectrum = torch.stft(wave, window, hop, window=hann, center=False, return_complex=True)
    power = spectrum.abs().numpy() ** 2
    logs = np.log10(np.maximum(triangles(rate, window, mels) @ power, 1e-10)).T
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def triangles(rate: int, window: int, mels: int) -> NDArray[np.float64]:
    top = 15 + 27 * np.log(rate / 2000) / np.log(6.4)
    marks = np.linspace(0, top, mels + 2)
    edges = np.where(marks < 15, marks * 200 / 3, 1000 * 6.4 ** ((marks - 15) / 27))
    bins = np.fft.rfftfreq(window, 1 / rate)
    rows = [np.interp(bins, edges[i : i + 3], [0, 1, 0]) * 2 / (edges[i + 2] - edges[i]) for i in range(mels)]
    return np.stack(rows)


@pytest.mark.parametrize(("rate", "mels", "seconds"), [(16_000, 80, 0.5), (8_000, 20, 0.333), (8_000, 40, 0.004)])
def test_log_mel_is_that_of_a_short_time_fourier_transform(
    tmp_path: Path, rate: int, mels: int, seconds: float
) -> None:
    samples = sound(rate, seconds)
    frames = torch.from_numpy(cut(samples, rate // 100))[None]
    found = TorchModule(compile_spec(spec(tmp_path, rate, mels)))(
        frames, torch.ones(frames.shape[:2], dtype=torch.bool)
    )
    np.testing.assert_allclose(found[0].detach().numpy(), expected(samples, rate, mels), atol=2e-3)


def test_log_mel_in_an_engine_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    assert build_engine(spec(tmp_path, 8_000, 20), None, None, "cpu", tmp_path / "engine").passed
    engine, samples = load(tmp_path / "engine"), sound(8_000, 0.333)
    rows = [{"wave": cut(part, 80)} for part in (samples, samples[:777])]
    for row, part in zip(engine.predict_rows(rows), (samples, samples[:777]), strict=True):
        np.testing.assert_allclose(row.results["energies"], expected(part, 8_000, 20), atol=2e-3)


def test_log_mel_is_exact_also_where_training_is_in_bfloat16(tmp_path: Path) -> None:
    samples = sound(8_000, 0.333)
    frames = torch.from_numpy(cut(samples, 80))[None]
    module = TorchModule(compile_spec(spec(tmp_path, 8_000, 20)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(frames, torch.ones(frames.shape[:2], dtype=torch.bool))
    np.testing.assert_allclose(found[0].detach().float().numpy(), expected(samples, 8_000, 20), atol=2e-2)


KALDI = """\
sizes: {sample_rate: 16000, hop: 160, frame: 400, window: 512, bins: 257, mels: 40}
CHOICES
inputs: {wave: {vectors: hop, rate: sample_rate}}
results: {energies: {ctc: scaled}}
model:
  energies: {from: wave, do: [kaldi_mel]}
  scaled: {from: energies, do: {gain: {weight: {axes: mels, initial: one}}, scaled: {times: energies}}}
train: {schedule: {peak: 0.001}}
"""


def kaldi(samples: Samples, power: float) -> NDArray[np.float64]:
    """Kaldi's log energies of mel bands in float64, by its own rules for frames, emphasis, windows and bands."""
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 400)[::160]
    centered = frames - frames.mean(1, keepdims=True)
    emphasized = centered - 0.97 * np.concatenate((centered[:, :1], centered[:, :-1]), 1)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** power
    energies = np.abs(np.fft.rfft(emphasized * window, 512)) ** 2
    low, high, bins = (1127 * np.log(1 + np.asarray(one) / 700) for one in (20, 8000, np.arange(257) * 31.25))
    edges = np.linspace(low, high, 42)
    rise, fall = np.diff(edges)[:-1, None], np.diff(edges)[1:, None]
    bands = np.minimum((bins - edges[:-2, None]) / rise, (edges[2:, None] - bins) / fall).clip(0)
    return np.log(np.maximum(energies @ bands.T, np.finfo(np.float32).eps))


@pytest.mark.parametrize(("choices", "power"), [("", 0.85), ("choices: {taper: hann}", 1.0)])
def test_kaldi_mel_is_what_kaldi_computes(tmp_path: Path, choices: str, power: float) -> None:
    path = tmp_path / "kaldi.yaml"
    path.write_text(KALDI.replace("CHOICES", choices))
    module = TorchModule(load_spec(path).graph()).eval()
    samples = np.random.default_rng(0).normal(0, 0.1, 30 * 160).astype(np.float32)
    wanted = kaldi(samples, power)
    with torch.no_grad():
        found = module(torch.tensor(samples).view(1, 30, 160), torch.ones((1, 30), dtype=torch.bool))[0].numpy()
    assert wanted.shape == (28, 40)
    np.testing.assert_allclose(found[:28], wanted, rtol=0, atol=1e-3)
