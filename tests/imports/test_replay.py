"""Small random models of transformers give the same logits after an import, or are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine, mistake

from xformc.imports.replay import BOUND

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
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}

MODELS = [
    ("GPT2", GPT2),
    ("GPT2", {**GPT2, "activation_function": "gelu", "n_inner": 40, "layer_norm_epsilon": 1e-3}),
    ("GPT2", {**GPT2, "tie_word_embeddings": False, "scale_attn_weights": False}),
    ("Llama", LLAMA),
    ("Llama", {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "head_dim": 12}),
    ("Llama", {**LLAMA, "rope_parameters": {**ROPE, "original_max_position_embeddings": 16}}),
    ("Llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ("Mistral", {**LLAMA, "sliding_window": 8}),
    ("Mistral", {**LLAMA, "sliding_window": None, "tie_word_embeddings": True}),
    ("Qwen2", LLAMA),
    ("Qwen3", {**LLAMA, "head_dim": 12, "tie_word_embeddings": True}),
    ("Gemma", {**LLAMA, "head_dim": 12}),
    ("GPTNeoX", WIDE),
    ("Phi", WIDE),
    ("Phi", {**LLAMA, "hidden_act": "gelu"}),
    ("OPT", {**OPT, "ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3}),
    ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "initializer_range": 0.3}),
    ("Bloom", {"hidden_size": 48, "n_layer": 2, "n_head": 6, "vocab_size": 60, "initializer_range": 0.3}),
]


def save(folder: Path, name: str, settings: dict) -> Path:
    """A random model of transformers, with biases and gains that are random, too."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings, bos_token_id=1, eos_token_id=2)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("name", "settings"), MODELS)
@pytest.mark.filterwarnings("ignore")
def test_an_import_gives_the_logits_of_the_origin(
    xformc: CommandLine, tmp_path: Path, name: str, settings: dict
) -> None:
    folder = save(tmp_path / "model", name, settings)
    result = xformc("import", folder, "-o", tmp_path / "run", "--replay")
    assert result.code == 0, result.err
    record = json.loads((tmp_path / "run" / "import.json").read_text())["replay"]
    assert record["difference"] <= BOUND * record["deviation"]
    assert f"largest difference of logits {record['difference']:.2g}" in result.out


@pytest.mark.filterwarnings("ignore")
def test_an_import_with_other_logits_is_refused(xformc: CommandLine, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", "GPT2", GPT2)
    table = tmp_path / "mine.yaml"
    table.write_text("like: gpt2\ncases: {activation_function: {gelu_new: {}}}\n")
    found = mistake(xformc("import", folder, "-o", tmp_path / "run", "--replay", "--map", table))
    assert "the import does not compute the origin's logits: largest difference of logits" in found
    assert not (tmp_path / "run").exists()
