"""Writes small checkpoints of fairseq, with dictionaries and codes, from random weights."""

import argparse
from pathlib import Path
from typing import Any

import torch

WORDS = ["lo@@", "low", "er", "e@@", "r", "n@@", "ew", "w@@", "the"]
CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\ne w</w>\nt h\nth e</w>\n"
OPTIONS = {
    "arch": "transformer_iwslt_de_en",
    "source_lang": "de",
    "target_lang": "en",
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_embed_dim": 8,
    "decoder_embed_dim": 8,
    "encoder_ffn_embed_dim": 12,
    "decoder_ffn_embed_dim": 12,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
    "dropout": 0.1,
    "share_all_embeddings": True,
    "activation_fn": "relu",
    "max_tokens": 4096,
    "adaptive_softmax_cutoff": None,
}
SIZE = 4 + len(WORDS)


def write_fairseq(folder: Path, **changed: Any) -> dict[str, torch.Tensor]:
    """Write a model folder; return its weights. `changed` are options of the checkpoint."""
    weights = {name: tensor.clone() for name, tensor in peer().state_dict().items()}
    state = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    state = {name: tensor for name, tensor in state.items() if name not in ("shared.weight", "lm_head.weight")}
    state["encoder.version"] = torch.tensor([3.0])
    folder.mkdir(parents=True, exist_ok=True)
    given = argparse.Namespace(**{**OPTIONS, **changed})
    torch.save({"args": given, "model": state, "extra_state": {"best": 1.5}}, folder / "checkpoint_best.pt")
    for language in ("de", "en"):
        lines = "".join(f"{word} {9 - index}\n" for index, word in enumerate(WORDS))
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    (folder / "bpe.codes").write_text(CODES, encoding="utf-8")
    return state


def peer() -> Any:
    """The M2M-100 of transformers, which is fairseq's Transformer with other names."""
    import transformers

    torch.manual_seed(0)
    sizes: Any = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    config = transformers.M2M100Config(
        vocab_size=SIZE, d_model=8, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=12, decoder_ffn_dim=12,
        encoder_layerdrop=0.0, decoder_layerdrop=0.0, init_std=0.5, **sizes,
    )  # fmt: skip
    return transformers.M2M100ForConditionalGeneration(config).eval()
