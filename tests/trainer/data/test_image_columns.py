"""Columns that name images, and the commands from them to scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, mistake

pillow: Any = pytest.importorskip("PIL.Image", reason="reading images takes Pillow")

CAPTIONS = """\
sizes: {d_model: 8, height: 4, width: 4, channels: 3, vocabulary: 6}
inputs: {image: {values: [height, width, channels]}, caption: {tokens: vocabulary}}
results: {caption: {text: logits}}
model:
  sight: {from: image, do: [linear: {over: [height, width, channels], to: d_model}, tanh]}
  states: {from: caption, do: [embedding: d_model, {gru_from: {start: sight}}]}
  logits: {from: states, do: [linear: vocabulary]}
train: {steps: 2, batch_tokens: 64, tokenizer: {kind: word}, schedule: {warmup_steps: 1, peak: 0.01}}
decode: {beam_size: 2, max_length: {offset: 4}}
"""
LABELS = """\
task: classification
sizes: {height: 4, width: 4, labels: 2}
inputs: {image: {values: [height, width]}}
model: {label: {from: image, do: [linear: {over: [height, width], to: labels}]}}
train: {steps: 2, batch_tokens: 64, schedule: {warmup_steps: 1, peak: 0.01}}
"""


def corpus(folder: Path) -> Path:
    for split, count in (("train", 8), ("valid", 4), ("test", 4)):
        (folder / split).mkdir(parents=True)
        lines: list[str] = []
        for index in range(count):
            shade = index % 2 * 255
            name = f"{split}/{index}.png"
            pillow.fromarray(np.full((5, 7), shade, np.uint8)).save(folder / name)
            lines.append(f"{name}\t{('black', 'white')[index % 2]}\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


@pytest.mark.parametrize(("text", "command"), [(CAPTIONS, "transcribe"), (LABELS, "predict")])
def test_spec_of_images_is_trained_scored_and_run_on_files(
    xformc: CommandLine, tmp_path: Path, text: str, command: str
) -> None:
    folder, run, engine = corpus(tmp_path / "data"), tmp_path / "run", tmp_path / "engine"
    (tmp_path / "model.yaml").write_text(text)
    assert xformc("train", tmp_path / "model.yaml", "--data", folder, "-o", run, "--quiet").code == 0
    assert xformc("build", run, "-o", engine, "--target", "cpu").code == 0
    scored = xformc("evaluate", engine, folder / "test.tsv", "--json")
    assert scored.code == 0 and json.loads(scored.out)["examples"] == 4
    found = xformc(command, engine, folder / "test/0.png", folder / "test/1.png")
    assert (found.code, found.out.count("\n")) == (0, 2)
    listed = f"{folder / 'test/0.png'}\n{folder / 'test/1.png'}\n"
    assert xformc(command, engine, stdin=listed).out == found.out
    (folder / "bad.png").write_text("no image")
    assert mistake(xformc(command, engine, folder / "bad.png")).startswith(
        f"{folder / 'bad.png'}: not an image that can be read: it is neither PNG nor JPEG"
    )
