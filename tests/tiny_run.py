"""A tiny spec and corpus that train completely in a second or two."""

from pathlib import Path

import torch

from xformc.compiler.spec import Spec, load_spec
from xformc.trainer.checkpoint import State
from xformc.trainer.train import Options, train_weights

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 60, dropout: 0.1}
train:
  schedule: {warmup_steps: 20}
  batch_tokens: 128
  accumulate: 2
  clip_norm: 1.0
  steps: 60
  checkpoint: {every_steps: 5, every_minutes: null}
  average: 3
  seed: 7
"""
WORDS = ("red rot", "green grün", "blue blau", "one eins", "two zwei", "three drei", "dog Hund", "cat Katze")


def write_spec(folder: Path, text: str = SPEC) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def write_corpus(folder: Path, count: int = 200) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, size, offset in (("train", count, 0), ("valid", 20, 1000)):
        pairs = [_pair(offset + index) for index in range(size)]
        (folder / f"{name}.tsv").write_text(
            "".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8"
        )
    return folder


def train_tiny(spec: Path, data: Path, out: Path, options: Options) -> State:
    torch.set_num_threads(1)
    return train_weights(load_spec(spec), data, out, options, quiet=True).state


def load(folder: Path) -> Spec:
    return load_spec(write_spec(folder))


def _pair(index: int) -> tuple[str, str]:
    chosen = [WORDS[(index * 7 + place * (index + 3)) % len(WORDS)].split() for place in range(1 + index % 5)]
    return " ".join(word[0] for word in chosen), " ".join(word[1] for word in chosen)
