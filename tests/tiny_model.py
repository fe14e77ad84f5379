"""A tiny model with dropout that trains in milliseconds, and examples for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from xformc.format.tokens import BEGIN, END
from xformc.trainer.checkpoint import State, checkpoint_folder
from xformc.trainer.checkpoint_writer import CheckpointWriter
from xformc.trainer.data.batches import Examples
from xformc.trainer.data.columns import pack
from xformc.trainer.data.text_examples import of_pairs, of_texts
from xformc.trainer.loop import Recipe

PIECES = 20


class TinyModel(nn.Module):
    """The mean of the source and the last token predict the next; the interface is the loss graph's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(PIECES, 8))
        self.projection = nn.Parameter(torch.randn(PIECES, 8) / 3)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mask = (source != 0).unsqueeze(-1)
        context = (self.embedding[source] * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        x = nn.functional.dropout(context + self.embedding[target], 0.2, self.training)
        logits = (x @ self.projection.T).float().flatten(0, 1)
        nll = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=0, reduction="sum")
        count = (labels != 0).sum()
        return nll / count, nll, count


def make_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), fused=True)


def pair_examples(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], longest: int) -> Examples:
    """Examples of sentence pairs, with the special tokens of xformc."""
    return of_pairs(pack(sources, after=[END]), pack(targets, before=[BEGIN], after=[END]), longest)


def text_examples(texts: Sequence[Sequence[int]], longest: int) -> Examples:
    """Examples of texts, with the special tokens of xformc."""
    return of_texts(pack(texts, before=[BEGIN], after=[END]), longest)


def copy_examples(count: int = 64, seed: int = 0) -> Examples:
    random = np.random.default_rng(seed)
    sentences = [random.integers(4, PIECES, random.integers(1, 8)).tolist() for _ in range(count)]
    return pair_examples(sentences, sentences, longest=16)


def make_recipe(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "learning_rate": lambda step: 0.01,
        "batch_tokens": 64,
        "accumulate": 1,
        "clip_norm": None,
        "seed": 1,
        "bfloat16": False,
        "steps": 10,
        "seconds": None,
        "checkpoint_steps": None,
        "checkpoint_seconds": None,
    }
    return Recipe(**{**settings, **changes})


def save_checkpoint(
    run: Path, state: State, model: nn.Module, optimizer: torch.optim.Optimizer, metadata: dict[str, str]
) -> Path:
    """Write a checkpoint and wait for it."""
    with CheckpointWriter(run, metadata) as writer:
        writer.save(state, model, optimizer)
    return checkpoint_folder(run, state.step)
