"""Writes random weights of a spec under the names of a family's table: what a folder of Hugging Face would hold."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from xformc.compiler.spec import load_spec
from xformc.compiler.spec.tree import write_yaml
from xformc.compiler.weight_files import graph_shapes
from xformc.imports.config import read_config, resolve
from xformc.imports.family import find_family
from xformc.imports.weights import family_row, lengths_of

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 8,
    "n_head": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "vocab_size": 20,
    "n_positions": 16,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "vocab_size": 20,
    "rope_theta": 10000.0,
}
NEOX = {**LLAMA, "model_type": "gpt_neox", "rotary_pct": 1.0}
del NEOX["num_key_value_heads"]
FALCON = {**LLAMA, "model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2}
del FALCON["intermediate_size"], FALCON["num_key_value_heads"]
OPT = {
    "model_type": "opt",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "ffn_dim": 12,
    "num_attention_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "vocab_size": 20,
    "max_position_embeddings": 16,
}
BLOOM = {
    "model_type": "bloom",
    "n_layer": 2,
    "hidden_size": 8,
    "n_head": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "vocab_size": 20,
}
MARIAN = {
    "model_type": "marian",
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "vocab_size": 20,
    "pad_token_id": 19,
}
BART = {**MARIAN, "model_type": "bart", "pad_token_id": 1, "max_position_embeddings": 16}
T5 = {"model_type": "t5", "d_model": 8, "d_ff": 12, "d_kv": 4, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForTokenClassification"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "vocab_size": 20,
    "max_position_embeddings": 16,
}
DEBERTA = {**BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
ROBERTA = {**BERT, "model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}
WAV2VEC2 = {
    "model_type": "wav2vec2",
    "architectures": ["Wav2Vec2ForCTC"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "conv_dim": [6] * 7,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
    "pad_token_id": 0,
}
ETTIN = {
    "model_type": "modernbert-decoder",
    "architectures": ["ModernBertDecoderForCausalLM"],
    "num_hidden_layers": 2,
    "local_attention": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SIGHT = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
VIT = {**SIGHT, "model_type": "vit", "architectures": ["ViTForImageClassification"]}
TROCR = {
    "model_type": "trocr",
    "d_model": 10,
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 12,
    "vocab_size": 20,
    "max_position_embeddings": 16,
}
DINO = {key: value for key, value in VIT.items() if key != "intermediate_size"}
MOE = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
DEEPSEEK = {
    **LLAMA,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 3,
}
FAMILIES = {
    "bart": BART,
    "bert": BERT,
    "distilbert": {
        "model_type": "distilbert",
        "architectures": ["DistilBertModel"],
        "dim": 8,
        "n_layers": 1,
        "n_heads": 2,
        "hidden_dim": 12,
        "vocab_size": 20,
        "max_position_embeddings": 16,
    },
    "electra": {**BERT, "model_type": "electra", "architectures": ["ElectraModel"], "embedding_size": 8},
    "deberta": {**DEBERTA, "model_type": "deberta", "architectures": ["DebertaForMaskedLM"]},
    "deberta-v2": {
        **DEBERTA,
        "model_type": "deberta-v2",
        "architectures": ["DebertaV2ForTokenClassification"],
        "position_buckets": 4,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
    "roberta": ROBERTA,
    "xlm-roberta": {**ROBERTA, "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"]},
    "camembert": {**ROBERTA, "model_type": "camembert", "architectures": ["CamembertModel"]},
    "albert": {
        **BERT,
        "model_type": "albert",
        "architectures": ["AlbertForMaskedLM"],
        "num_hidden_layers": 2,
        "embedding_size": 4,
    },
    "mpnet": {**ROBERTA, "model_type": "mpnet", "architectures": ["MPNetForSequenceClassification"]},
    "ernie": {**BERT, "model_type": "ernie", "architectures": ["ErnieForTokenClassification"], "use_task_id": True},
    "megatron-bert": {
        **BERT,
        "model_type": "megatron-bert",
        "architectures": ["MegatronBertForSequenceClassification"],
    },
    "nomic_bert": {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "n_embd": 8,
        "n_head": 2,
        "n_inner": 12,
        "n_layer": 1,
        "activation_function": "swiglu",
        "vocab_size": 20,
    },
    "fnet": {
        **{key: value for key, value in BERT.items() if key != "num_attention_heads"},
        "model_type": "fnet",
        "architectures": ["FNetForPreTraining"],
    },
    "roformer": {**BERT, "model_type": "roformer", "architectures": ["RoFormerForMaskedLM"], "embedding_size": 4},
    "esm": {
        **ROBERTA,
        "model_type": "esm",
        "architectures": ["EsmForMaskedLM"],
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "mask_token_id": 19,
        "pad_token_id": 1,
    },
    "modernbert": {
        **BERT,
        "model_type": "modernbert",
        "architectures": ["ModernBertForSequenceClassification"],
        "num_hidden_layers": 3,
        "local_attention": 4,
        "classifier_pooling": "mean",
        "pad_token_id": 0,
        "sep_token_id": 3,
    },
    "eurobert": {
        **LLAMA,
        "model_type": "eurobert",
        "architectures": ["EuroBertForMaskedLM"],
        "pad_token_id": 2,
        "clf_pooling": "late",
    },
    "bloom": BLOOM,
    "falcon": FALCON,
    "gemma": {**LLAMA, "model_type": "gemma", "head_dim": 4},
    "gemma2": {**LLAMA, "model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh"},
    "gemma3_text": {**LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 4},
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "llama": LLAMA,
    "m2m_100": {**BART, "model_type": "m2m_100"},
    "marian": MARIAN,
    "mbart": {**BART, "model_type": "mbart"},
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 4},
    "mt5": {**T5, "model_type": "mt5", "feed_forward_proj": "relu"},
    "plbart": {**BART, "model_type": "plbart"},
    "blenderbot": {**BART, "model_type": "blenderbot", "pad_token_id": 0, "scale_embedding": True},
    "blenderbot-small": {**BART, "model_type": "blenderbot-small", "pad_token_id": 0},
    "umt5": {**T5, "model_type": "umt5", "num_layers": 2},
    "opt": OPT,
    "pegasus": {**MARIAN, "model_type": "pegasus", "pad_token_id": 0},
    "phi": {**LLAMA, "model_type": "phi", "partial_rotary_factor": 1.0},
    "qwen2": {**LLAMA, "model_type": "qwen2", "layer_types": ["full_attention"] * 2},
    "t5": T5,
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 4},
    "olmo": {**LLAMA, "model_type": "olmo", "clip_qkv": 8.0},
    "olmo2": {**LLAMA, "model_type": "olmo2"},
    "starcoder2": {**LLAMA, "model_type": "starcoder2", "sliding_window": 4},
    "phi3": {**LLAMA, "model_type": "phi3"},
    "granite": {**LLAMA, "model_type": "granite", "logits_scaling": 4.0},
    "glm": {**LLAMA, "model_type": "glm", "head_dim": 4},
    "glm4": {**LLAMA, "model_type": "glm4", "head_dim": 4},
    "stablelm": {**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 1.0},
    "nemotron": {**LLAMA, "model_type": "nemotron", "head_dim": 4},
    "cohere": {**LLAMA, "model_type": "cohere", "use_qk_norm": True},
    "cohere2": {**LLAMA, "model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 4},
    "smollm3": {**LLAMA, "model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
    "exaone4": {**LLAMA, "model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 4},
    "olmo3": {**LLAMA, "model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 4},
    "helium": {**LLAMA, "model_type": "helium", "head_dim": 4},
    "ernie4_5": {**LLAMA, "model_type": "ernie4_5", "head_dim": 4},
    "seed_oss": {**LLAMA, "model_type": "seed_oss", "head_dim": 4},
    "arcee": {**LLAMA, "model_type": "arcee"},
    "apertus": {**LLAMA, "model_type": "apertus"},
    "hunyuan_v1_dense": {**LLAMA, "model_type": "hunyuan_v1_dense"},
    "persimmon": {**NEOX, "model_type": "persimmon"},
    "modernbert-decoder": {**BERT, **ETTIN},
    "gptj": {**GPT2, "model_type": "gptj", "rotary_dim": 2},
    "codegen": {**GPT2, "model_type": "codegen", "n_embd": 16, "n_head": 4, "rotary_dim": 2},
    "gpt_bigcode": {**GPT2, "model_type": "gpt_bigcode"},
    "gpt_neo": {
        "model_type": "gpt_neo",
        "num_layers": 2,
        "hidden_size": 8,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": 20,
        "max_position_embeddings": 16,
    },
    "mpt": {
        "model_type": "mpt",
        "n_layers": 2,
        "d_model": 8,
        "n_heads": 2,
        "attn_config": {"clip_qkv": 8.0},
        "eos_token_id": 2,
        "vocab_size": 20,
    },
    "xglm": {
        "model_type": "xglm",
        "num_layers": 2,
        "d_model": 8,
        "ffn_dim": 12,
        "attention_heads": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": 20,
    },
    "biogpt": {
        "model_type": "biogpt",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_attention_heads": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": 20,
        "max_position_embeddings": 16,
    },
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 4},
    "qwen2_moe": {**MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 10, "norm_topk_prob": True},
    "qwen3_moe": {**MOE, "model_type": "qwen3_moe", "head_dim": 4},
    "olmoe": {**{key: MOE[key] for key in MOE if key != "moe_intermediate_size"}, "model_type": "olmoe"},
    "deepseek_v2": {**DEEPSEEK, "model_type": "deepseek_v2"},
    "deepseek_v3": {**DEEPSEEK, "model_type": "deepseek_v3", "q_lora_rank": 5},
    "gpt_oss": {**LLAMA, "model_type": "gpt_oss", "head_dim": 4, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {**LLAMA, "model_type": "granitemoe", "num_local_experts": 4, "residual_multiplier": 0.5},
    "mamba": {
        "model_type": "mamba",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "state_size": 3,
        "eos_token_id": 2,
        "vocab_size": 20,
    },
    "mamba2": {
        "model_type": "mamba2",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_heads": 4,
        "head_dim": 3,
        "n_groups": 2,
        "state_size": 3,
        "eos_token_id": 2,
        "vocab_size": 20,
    },
    "rwkv": {"model_type": "rwkv", "num_hidden_layers": 2, "hidden_size": 8, "eos_token_id": 2, "vocab_size": 20},
    "wav2vec2": WAV2VEC2,
    "hubert": {**WAV2VEC2, "model_type": "hubert", "architectures": ["HubertForCTC"]},
    "wavlm": {
        **WAV2VEC2,
        "model_type": "wavlm",
        "architectures": ["WavLMForCTC"],
        "num_hidden_layers": 2,
        "num_buckets": 8,
    },
    "unispeech": {**WAV2VEC2, "model_type": "unispeech", "architectures": ["UniSpeechForCTC"]},
    "data2vec-audio": {
        **WAV2VEC2,
        "model_type": "data2vec-audio",
        "architectures": ["Data2VecAudioForCTC"],
        "num_conv_pos_embeddings": 2,
        "conv_pos_kernel_size": 5,
    },
    "whisper": {
        **{key: value for key, value in MARIAN.items() if key != "pad_token_id"},
        "model_type": "whisper",
        "num_mel_bins": 8,
        "max_source_positions": 10,
        "max_target_positions": 16,
        "eos_token_id": 18,
        "decoder_start_token_id": 19,
    },
    "moonshine": {
        "model_type": "moonshine",
        "hidden_size": 24,
        "intermediate_size": 12,
        "encoder_num_hidden_layers": 1,
        "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 2,
        "vocab_size": 20,
    },
    "speech_to_text": {
        **MARIAN,
        "model_type": "speech_to_text",
        "pad_token_id": 1,
        "input_feat_per_channel": 8,
        "conv_channels": 12,
        "max_target_positions": 16,
    },
    "audio-spectrogram-transformer": {
        **{key: value for key, value in VIT.items() if key != "image_size"},
        "model_type": "audio-spectrogram-transformer",
        "architectures": ["ASTForAudioClassification"],
        "frequency_stride": 2,
        "time_stride": 3,
        "max_length": 11,
        "num_mel_bins": 8,
    },
    "vit": VIT,
    "dinov2": {**DINO, "model_type": "dinov2", "architectures": ["Dinov2Model"]},
    "dinov2_with_registers": {
        **DINO,
        "model_type": "dinov2_with_registers",
        "architectures": ["Dinov2WithRegistersForImageClassification"],
    },
    "clip_vision_model": {
        **VIT,
        "model_type": "clip_vision_model",
        "architectures": ["CLIPVisionModelWithProjection"],
        "projection_dim": 6,
    },
    "siglip_vision_model": {**VIT, "model_type": "siglip_vision_model", "architectures": ["SiglipVisionModel"]},
    "beit": {
        **VIT,
        "model_type": "beit",
        "architectures": ["BeitForImageClassification"],
        "use_relative_position_bias": True,
    },
    "data2vec-vision": {
        **VIT,
        "model_type": "data2vec-vision",
        "architectures": ["Data2VecVisionForImageClassification"],
        "use_shared_relative_position_bias": True,
    },
    "deit": {**VIT, "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"]},
    "paligemma": {
        "model_type": "paligemma",
        "architectures": ["PaliGemmaForConditionalGeneration"],
        "text_config": {**LLAMA, "model_type": "gemma", "head_dim": 4, "vocab_size": 120},
        "vision_config": {**SIGHT, "model_type": "siglip_vision_model"},
    },
    "llava": {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": 19,
        "text_config": LLAMA,
        "vision_config": {**SIGHT, "model_type": "clip_vision_model", "num_hidden_layers": 2},
    },
    "vision-encoder-decoder": {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "encoder": {**SIGHT, "model_type": "vit"},
        "decoder": TROCR,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    },
}
"""A small config of each shipped family."""


ROUNDED = ("gemma", "paligemma", "nemotron", "wav2vec2", "hubert", "wavlm", "unispeech")
"""Families with gains that are stored as their difference from 1, and weights as lengths and directions."""


def write_config(folder: Path, config: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_foreign(folder: Path, config: dict) -> dict[str, np.ndarray]:
    """Write the config and the weights; return our weights by path."""
    write_config(folder, config)
    family, filled = resolve(find_family(config["model_type"]), read_config(folder), "here")
    spec_file = folder / "spec.yaml"
    spec_file.write_text(write_yaml(filled.filled(family.spec)), encoding="utf-8")
    shapes = graph_shapes(load_spec(spec_file).graph())
    spec_file.unlink()
    draw = np.random.default_rng(0)
    ours = {path: draw.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
    parts: dict[str, dict[int, np.ndarray]] = {}
    orders: dict[str, tuple[int, ...] | None] = {}
    stacks: dict[str, dict[int, str]] = {}
    for path, array in ours.items():
        row = family_row(family, filled, path, ())
        assert row is not None, path
        whole = len(row.axes or ()) > 2 or row.gain is not None
        flat = array if whole else array.reshape(_merged(path, array))
        place = row.part if row.rows is None else row.rows[0]
        source = row.source if row.pick is None else f"{row.source}.{row.pick}"
        if row.pick is not None:
            stacks.setdefault(row.source, {})[row.pick] = source
        pieces = parts.setdefault(source, {})
        pieces[place] = (flat - np.float32(row.plus)).reshape(row.each, -1, *flat.shape[1:])
        if row.rows is not None and 0 not in pieces and row.groups == 1:  # the rows before, if no parameter has them
            pieces[-1] = np.zeros((1, row.rows[0], *flat.shape[1:]), np.float32)
        elif 0 in pieces:
            pieces.pop(-1, None)
        orders[source] = row.axes
    theirs = {name: np.concatenate([found[part] for part in sorted(found)], 1) for name, found in parts.items()}
    merged = {name: array.reshape(-1, *array.shape[2:]) for name, array in theirs.items()}
    stored = {name: one.transpose(np.argsort(orders[name] or range(one.ndim))) for name, one in merged.items()}
    for row in filter(None, (family_row(family, filled, path, ()) for path in ours)):
        if row.first:
            stored[row.source] = stored[row.source][np.argsort(row.order(len(stored[row.source])))]
        if row.gain is not None:
            stored[row.gain] = lengths_of(stored[row.source], row.gain_axis)
    for name, picked in stacks.items():
        stored[name] = np.stack([stored.pop(picked[pick]) for pick in sorted(picked)])
    save(folder, stored)
    return ours


def save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "model.safetensors")


def _merged(path: str, array: np.ndarray) -> tuple[int, ...]:
    """The shape of a matrix [out, in] of a linear map whose axes are told apart, else of a vector."""
    if not path.endswith("/weight"):
        return (array.size,)
    return (array.shape[0], array.size // array.shape[0]) if "output" in path else (-1, array.shape[-1])
