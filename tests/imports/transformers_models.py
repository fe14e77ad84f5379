"""Writes small random models of transformers: the sizes of some, and a function that saves them."""

from pathlib import Path
from typing import Any

import pytest
import torch

transformers: Any = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 60,
    "initializer_range": 0.3,
}
WIDE = {**SIZES, "intermediate_size": 48, "max_position_embeddings": 64}
LLAMA = {**WIDE, "num_key_value_heads": 2}
OPT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60, "word_embed_proj_dim": 32}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 32, "initializer_range": 0.3}


def save(folder: Path, name: str, settings: dict) -> Path:
    """A random model of transformers, with biases and gains that are random, too."""
    torch.manual_seed(0)
    forced = settings.get("forced_bos_token_id")
    config = getattr(transformers, f"{name}Config")(**{"bos_token_id": 1, "eos_token_id": 2, **settings})
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_config(config)
    with torch.no_grad():
        biases = [one for name, one in model.named_buffers() if name.endswith("s_bias") or "correction" in name]
        for parameter in (*model.parameters(), *biases):
            if parameter.dim() == 1 or parameter.shape[0] == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    if forced is not None:  # as published models have it; a config loses it when it is saved
        model.generation_config.forced_bos_token_id = forced
    model.save_pretrained(folder)
    return folder
