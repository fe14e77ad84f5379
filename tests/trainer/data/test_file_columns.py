"""Columns of texts that name files, and the commands from them to scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, mistake
from sounds import ENERGIES, tone, write_wav

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime import load
from xformc.runtime.media.wav import cut
from xformc.trainer.data.file_columns import read_files
from xformc.trainer.data.text_files import read_texts

SOUND = {"wave": Input("vectors", axes={"hop": 80}, rate=8000)}
SPOKEN = """\
sizes: {sample_rate: 8000, hop: 80, window: 200, bins: 1 + window / 2, mels: 8, d_model: 8, vocabulary: 6}
inputs: {wave: {vectors: hop, rate: sample_rate}}
results: {text: {ctc: logits}}
model: {states: {from: wave, do: [log_mel, linear: d_model, tanh]}, logits: {from: states, do: [linear: vocabulary]}}
train: {steps: 2, batch_tokens: 64, tokenizer: {kind: word}, schedule: {warmup_steps: 1, peak: 0.01}}
"""
SOUNDS = """\
task: classification
sizes: {sample_rate: 8000, hop: 80, window: 200, bins: 1 + window / 2, mels: 8, pitches: 2}
inputs: {wave: {vectors: hop, rate: sample_rate}}
model: {state: {from: wave, do: [log_mel, mean]}, pitch: {from: state, do: [linear: pitches]}}
train: {steps: 2, batch_tokens: 64, schedule: {warmup_steps: 1, peak: 0.01}}
"""
PITCHES = {"low": 200.0, "high": 2000.0}


def corpus(folder: Path) -> Path:
    for split, count in (("train", 8), ("valid", 4), ("test", 4)):
        lines: list[str] = []
        for index in range(count):
            name = ("low", "high")[index % 2]
            write_wav(folder / split / f"{index}.wav", tone(300 + 80 * index, PITCHES[name]))
            lines.append(f"{split}/{index}.wav\t{name}\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


def test_files_become_arrays_and_their_content_counts(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    texts = read_texts((folder / "valid.tsv",), ("wave", "text"))
    read = read_files(texts, SOUND)
    assert [len(array) for array in read.arrays["wave"]] == [4, 5, 6, 7]
    write_wav(folder / "valid" / "0.wav", tone(300, 300.0))
    assert read_files(texts, SOUND).sha256 != read.sha256


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        ("../a.wav", "../a.wav is not below the folder of this file", "copy it there"),
        ("/etc/a.wav", "/etc/a.wav is not below the folder of this file", "copy it there"),
        ("b.wav", "b.wav: cannot be read: No such file or directory", "a name is relative to the folder of this file"),
        ("high", "high: 'wave' is read from a .wav file", "each line must be wave, one tab, text"),
        ("bad.wav", "bad.wav: not a .wav file that can be read: it does not begin with RIFF and WAVE", "convert it"),
    ],
)
def test_file_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path, cell: str, message: str, hint: str) -> None:
    folder = corpus(tmp_path / "data")
    (folder / "bad.wav").write_text("no sound")
    (folder / "test.tsv").write_text(f"test/0.wav\tlow\n{cell}\thigh\n")
    with pytest.raises(UserError) as caught:
        read_files(read_texts((folder / "test.tsv",), ("wave", "text")), SOUND)
    assert (caught.value.message, caught.value.place) == (message, f"{folder / 'test.tsv'}:2")
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize("text", [SPOKEN, SOUNDS])
def test_spec_of_sounds_is_trained_scored_and_run_on_files(xformc: CommandLine, tmp_path: Path, text: str) -> None:
    folder, run, engine = corpus(tmp_path / "data"), tmp_path / "run", tmp_path / "engine"
    (tmp_path / "model.yaml").write_text(text)
    assert xformc("train", tmp_path / "model.yaml", "--data", folder, "-o", run, "--quiet").code == 0
    assert xformc("build", run, "-o", engine, "--target", "cpu").code == 0
    scored = xformc("evaluate", engine, folder / "test.tsv")
    assert scored.code == 0 and "4" in scored.out
    found = xformc("predict", engine, folder / "test/0.wav", folder / "test/1.wav")
    assert (found.code, found.out.count("\n")) == (0, 2)
    listed = f"{folder / 'test/0.wav'}\n{folder / 'test/1.wav'}\n"
    assert xformc("predict", engine, stdin=listed).out == found.out


@pytest.fixture
def energies(tmp_path: Path) -> Path:
    (tmp_path / "energies.yaml").write_text(ENERGIES)
    build_engine(load_spec(tmp_path / "energies.yaml"), None, None, "portable", tmp_path / "energies")
    return tmp_path / "energies"


def test_engine_takes_paths_and_gives_the_results_of_their_samples(energies: Path, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", tone(333), code=3, bits=32)
    with load(energies) as engine:
        assert engine.manifest.inputs["wave"].rate == 8000
        (one,), (same,) = engine.predict([str(path)]), engine.predict_rows([{"wave": cut(tone(333), 80)}])
        np.testing.assert_array_equal(one.results["energies"], same.results["energies"])
        np.testing.assert_array_equal(engine.predict([path])[0].results["energies"], one.results["energies"])
        examples: Any = [[tone(333)]]
        with pytest.raises(UserError, match="line 1: 'wave' must be the path of a file, found ndarray"):
            engine.predict(examples)
        whole = (cut(tone(333), 80) * 32767).astype(np.int16)
        with pytest.raises(UserError, match=r"wave must be samples from -1 to 1, not int16\nhint: divide"):
            engine.predict_rows([{"wave": whole}])
        with pytest.raises(UserError, match="wave must be samples from -1 to 1, not int16"):
            engine.predict({"wave": whole[None], "wave_lengths": [5]})


def test_inspect_shows_the_rate(xformc: CommandLine, energies: Path) -> None:
    assert "wave: a sound of 8,000 Hz, 80 samples at each position\n" in xformc("inspect", energies).out


def test_files_of_a_command_are_all_its_examples(xformc: CommandLine, energies: Path, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", tone(100), rate=16000)
    message = mistake(xformc("predict", energies, path))
    assert message.startswith(f"{path}: has 16,000 samples a second; this model takes 8,000\nhint: convert it")
    message = mistake(xformc("predict", energies, path, "--input", "lines.txt"))
    assert message == "the examples are either files or lines of --input\nhint: leave one of them out"
