"""The language models that are compared: their specs with random weights, and what other systems read of them."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from xformc.compiler.spec import Spec, load_spec
from xformc.exports.hugging_face import export_hugging_face
from xformc.format.names import SPEC, WEIGHTS
from xformc.trainer.tensors import write_tensors

GPT = "extends: gpt\nsizes: {max_positions: 4096, dropout: 0.0}\ntrain: {max_length: 4096}\n"
LLAMA = """
extends: llama
sizes: {groups: 12, group_heads: 1}
defaults: {rope: {halves: true}}
tie: [[decoder/embedding/weight, logits/weight]]
train: {max_length: 4096}
"""
MODELS = {"gpt2": GPT, "llama": LLAMA}
"""The sizes and the architecture of GPT-2 small, and a Llama of 110 million parameters."""

SPECIAL = ("<blank>", "<unk>", "<s>", "</s>")
"""The names of the first tokens; the others are t4, t5 and so on."""


def model_spec(name: str, folder: Path) -> Spec:
    """Return the spec of one of MODELS, for which `folder` gets a file."""
    path = folder / "generator.yaml"
    path.write_text(MODELS[name], encoding="utf-8")
    return load_spec(path)


def write_hugging_face(spec: Spec, weights: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Write the model as a folder of transformers below `folder`; return it."""
    out = folder / "hugging_face"
    export_hugging_face(write_run(spec, weights, folder / "run"), out)
    return out


def write_run(spec: Spec, weights: Mapping[str, np.ndarray], run: Path) -> Path:
    """Write the model as a run with a tokenizer that has names alone; return its folder."""
    run.mkdir()
    (run / SPEC).write_text(spec.resolved_yaml(), encoding="utf-8")
    write_tensors(run / WEIGHTS, {name: torch.from_numpy(array) for name, array in weights.items()}, {})
    write_tokenizer(int(spec.sizes["vocabulary"]), run)
    return run


def write_tokenizer(size: int, folder: Path) -> None:
    """Write a tokenizer that has the names of this many tokens alone."""
    vocabulary = {name: number for number, name in enumerate(token_names(size))}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": SPECIAL[1]}
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    content = {"version": "1.0", **nothing, "added_tokens": [], "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def token_names(size: int) -> list[str]:
    """Return the names of this many tokens."""
    return [*SPECIAL, *(f"t{number}" for number in range(len(SPECIAL), size))]
