"""Small random models of transformers give the same logits after an import, or are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine, mistake

from tests.imports.transformers_models import GPT2, LLAMA, OPT, SIZES, WIDE, save
from xformc.format.interfaces import PROMPTS
from xformc.format.names import BEAMS
from xformc.imports.replay import BOUND
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import search

transformers: Any = pytest.importorskip("transformers")

FALCON = {**SIZES, "num_kv_heads": 2, "max_position_embeddings": 64}
MOE = {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
FEW = {**LLAMA, "num_local_experts": 5, "num_experts_per_tok": 2}
SCALES = {"embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 6.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 16}
LATENT = {
    **WIDE,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
GROUPED = {**LATENT, "n_group": 4, "topk_group": 2, "q_lora_rank": 20, "first_k_dense_replace": 1}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 60, "initializer_range": 0.3}
MAMBA2 = {**MAMBA, "num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 16}
RWKV = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 60, "context_length": 32}
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
UNCAPPED = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
BY_LAYER = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}

SIDES = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
}
SEQ2SEQ = {**SIDES, "d_model": 32, "vocab_size": 60, "max_position_embeddings": 64, "init_std": 0.3, "eos_token_id": 2}
T5 = {
    "vocab_size": 60,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
LAST = {"pad_token_id": 59, "decoder_start_token_id": 59, "eos_token_id": 0, "bos_token_id": None}
MARIAN = {**SEQ2SEQ, **LAST, "forced_eos_token_id": None, "scale_embedding": True, "activation_function": "swish"}
BART = {
    **SEQ2SEQ,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "forced_bos_token_id": None,
}
CHATTING = {**BART, "pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1}
TRANSLATIONS = [
    ("Marian", MARIAN),
    ("Bart", BART),
    ("MBart", {**BART, "scale_embedding": True, "forced_bos_token_id": 7}),
    ("Pegasus", {**BART, "eos_token_id": 1, "scale_embedding": True}),
    ("M2M100", {**BART, "scale_embedding": True, "forced_bos_token_id": 11}),
    ("T5", {**T5, "eos_token_id": 1}),
    ("MT5", {**T5, "eos_token_id": 1, "d_kv": 12}),
]

FAR = {
    "full_attention": {**YARN, "attention_factor": 1.3},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e5},
}
ALPHA = {"rope_type": "dynamic", "alpha": 100.0, "factor": 1.0, "rope_theta": 1e4}
NEO = {"hidden_size": 32, "num_heads": 4, "vocab_size": 60, "max_position_embeddings": 64, "initializer_range": 0.3}
MPT = {"d_model": 48, "n_layers": 2, "n_heads": 6, "vocab_size": 60, "max_seq_len": 64, "initializer_range": 0.3}
XGLM = {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "vocab_size": 60, "init_std": 0.3}
NEARBY = {**WIDE, "num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0}
GLM = {**LLAMA, "head_dim": 12, "pad_token_id": None, "partial_rotary_factor": 0.5}

MODELS = [
    ("GPT2", GPT2),
    ("GPT2", {**GPT2, "activation_function": "gelu", "n_inner": 40, "layer_norm_epsilon": 1e-3}),
    ("GPT2", {**GPT2, "tie_word_embeddings": False, "scale_attn_weights": False}),
    ("Llama", LLAMA),
    ("Llama", {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "head_dim": 12}),
    ("Llama", {**LLAMA, "rope_parameters": {**ROPE, "original_max_position_embeddings": 16}}),
    ("Llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ("Llama", {**LLAMA, "rope_parameters": {**YARN, "attention_factor": 1.4, "beta_fast": 16.0}}),
    ("Mistral", {**LLAMA, "sliding_window": 8}),
    ("Mistral", {**LLAMA, "sliding_window": None, "tie_word_embeddings": True}),
    ("Qwen2", LLAMA),
    ("Qwen3", {**LLAMA, "head_dim": 12, "tie_word_embeddings": True}),
    ("Mixtral", {**FEW, "sliding_window": 8}),
    ("Qwen2Moe", {**MOE, "shared_expert_intermediate_size": 20}),
    ("Qwen3Moe", {**MOE, "head_dim": 12, "norm_topk_prob": True, "attention_bias": True}),
    ("Olmoe", {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2}),
    ("GptOss", {**FEW, "num_hidden_layers": 3, "head_dim": 12, "sliding_window": 8}),
    ("GptOss", {**FEW, "rope_parameters": {**YARN, "truncate": True}}),
    ("GraniteMoe", {**FEW, **SCALES, "attention_bias": True, "tie_word_embeddings": True}),
    ("DeepseekV2", {**GROUPED, "topk_method": "group_limited_greedy", "num_hidden_layers": 3}),
    ("DeepseekV2", {**LATENT, "q_lora_rank": None}),
    ("DeepseekV3", {**GROUPED, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}}),
    ("DeepseekV3", {**GROUPED, "first_k_dense_replace": 0, "rope_interleave": False, "norm_topk_prob": False}),
    ("Gemma", {**LLAMA, "head_dim": 12}),
    ("Gemma2", {**LLAMA, "head_dim": 12, "sliding_window": 8, "query_pre_attn_scalar": 20, "num_hidden_layers": 3}),
    ("Gemma2", {**LLAMA, **UNCAPPED, "head_dim": 12, "sliding_window": 8, "tie_word_embeddings": False}),
    ("Gemma3Text", {**LLAMA, "head_dim": 12, "sliding_window": 8, "num_hidden_layers": 7, "hidden_size": 16}),
    ("Gemma3Text", {**LLAMA, "sliding_window": 8, "num_hidden_layers": 6, "rope_parameters": BY_LAYER}),
    ("Olmo", {**LLAMA, "clip_qkv": 0.5}),
    ("Olmo2", LLAMA),
    ("Phi3", {**LLAMA, "pad_token_id": 0, "sliding_window": 8, "partial_rotary_factor": 0.75}),
    ("Granite", {**LLAMA, **SCALES, "tie_word_embeddings": True}),
    ("Glm", {**GLM, "attention_bias": False}),
    ("Glm4", GLM),
    ("Starcoder2", {**LLAMA, "sliding_window": 8}),
    ("Starcoder2", {**LLAMA, "use_bias": False, "tie_word_embeddings": False}),
    ("StableLm", {**LLAMA, "use_qkv_bias": True}),
    ("Nemotron", LLAMA),
    ("Nemotron", {**LLAMA, "mlp_bias": True, "attention_bias": True, "head_dim": 12, "tie_word_embeddings": True}),
    ("Cohere", {**LLAMA, "logit_scale": 0.25}),
    ("Cohere", {**LLAMA, "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False}),
    ("Cohere2", {**LLAMA, "sliding_window": 8, "num_hidden_layers": 5}),
    ("SmolLM3", {**LLAMA, "pad_token_id": 0, "num_hidden_layers": 5}),
    ("Exaone4", {**LLAMA, "sliding_window": 8, "num_hidden_layers": 5}),
    ("Exaone4", {**LLAMA, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
    ("Olmo3", {**LLAMA, "sliding_window": 8, "num_hidden_layers": 4, "rope_parameters": FAR}),
    ("Helium", {**LLAMA, "head_dim": 8, "pad_token_id": 0}),
    ("Ernie4_5", {**LLAMA, "head_dim": 12}),
    ("SeedOss", {**LLAMA, "head_dim": 12}),
    ("Arcee", {**LLAMA, "rope_parameters": {**YARN, "mscale": 1.0}}),
    ("Apertus", {**LLAMA, "pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    ("HunYuanDenseV1", {**LLAMA, "head_dim": 12, "pad_token_id": 0, "rope_parameters": ALPHA}),
    ("Persimmon", WIDE),
    ("ModernBertDecoder", {**NEARBY, "cls_token_id": 1, "sep_token_id": 2}),
    ("GPTJ", {**GPT2, "rotary_dim": 4}),
    ("CodeGen", {**GPT2, "rotary_dim": 8, "n_inner": 40}),
    ("GPTBigCode", GPT2),
    ("GPTBigCode", {**GPT2, "multi_query": False, "tie_word_embeddings": False}),
    ("GPTNeo", {**NEO, "num_layers": 4, "window_size": 8, "attention_types": [[["global", "local"], 2]]}),
    ("Mpt", {**MPT, "attn_config": {"clip_qkv": 1.0, "softmax_scale": 0.5}}),
    ("XGLM", {**XGLM, "max_position_embeddings": 64, "bos_token_id": 0}),
    ("BioGpt", {**WIDE, "bos_token_id": 0}),
    ("Falcon", {**FALCON, "new_decoder_architecture": True}),
    ("Falcon", {**FALCON, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "bias": True}),
    ("Falcon", {**FALCON, "multi_query": False, "num_kv_heads": 4, "tie_word_embeddings": False}),
    ("Mamba", MAMBA),
    ("Mamba2", MAMBA2),
    ("Rwkv", RWKV),
    ("GPTNeoX", WIDE),
    ("Phi", WIDE),
    ("Phi", {**LLAMA, "hidden_act": "gelu"}),
    ("OPT", {**OPT, "ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3}),
    ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "initializer_range": 0.3}),
    ("Marian", {**MARIAN, "scale_embedding": False, "activation_function": "relu", "decoder_layers": 1}),
    ("Bart", {**BART, "scale_embedding": True, "pad_token_id": 1}),
    ("T5", {**T5, "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("MT5", {**T5, "eos_token_id": 1, "num_decoder_layers": 3}),
    ("UMT5", {**T5, "eos_token_id": 1}),
    ("PLBart", {**BART, "pad_token_id": 1}),
    ("Blenderbot", CHATTING),
    ("BlenderbotSmall", CHATTING),
    *TRANSLATIONS,
    ("Bloom", {"hidden_size": 48, "n_layer": 2, "n_head": 6, "vocab_size": 60, "initializer_range": 0.3}),
]


SEARCHED = [MODELS[0], MODELS[3], ("GPT2", {**GPT2, "eos_token_id": [*range(2, 9)]})]
"""GPT-2, Llama, and several end tokens."""


CONTINUED = [
    *SEARCHED,
    ("OPT", {**OPT, "ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3}),
    ("Falcon", FALCON),
    ("Mamba", MAMBA),
    ("Mamba2", MAMBA2),
    ("Rwkv", RWKV),
]


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


def engine_of(xformc: CommandLine, folder: Path, tmp_path: Path) -> Engine:
    for command in (("import", folder, "-o", tmp_path / "run"), ("build", tmp_path / "run", "-o", tmp_path / "engine")):
        result = xformc(*command)
        assert result.code == 0, result.err
    return load(tmp_path / "engine", threads=1)


def cut_after(text: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, ...]:
    """A text up to its first end token."""
    return text[: next((place + 1 for place, token in enumerate(text) if token in ends), None)]


def assert_searches_alike(engine: Engine, origin: Any) -> None:
    """All prompts are one batch; the origin is given one at a time. The end tokens are likely after the second."""
    special, random = engine.manifest.inputs["text"].special, torch.Generator().manual_seed(3)
    begun = list(special.begun)
    prompts = [torch.randint(0, 60, (length,), generator=random).tolist() for length in (1, 4, 9)]
    defaults, beams = engine.manifest.beams, engine.session.beside(BEAMS)
    assert defaults is not None and beams is not None
    assert (defaults.length_penalty, defaults.length_penalty_kind, defaults.stop_rule) == (1.0, "average", "best")
    given = {PROMPTS: pad(prompts, special.absent)}
    plain = replace(defaults, beam_size=3, n_best=3, max_length_offset=12)
    edits: dict[str, Any] = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}
    longer: dict[str, Any] = {"min_new_tokens": 3}
    likely = origin(torch.tensor([begun + prompts[1]])).logits[0, -1].topk(len(special.end)).indices
    ends, ended = tuple(likely.tolist()), 0
    kinds: Any = (False, 1.0, {}), (False, 1.0, longer), (True, 0.5, {}), ("never", 2.0, edits)
    for early_stopping, length_penalty, more in kinds:
        rule = {True: "first", False: "best", "never": "complete"}[early_stopping]
        ours = {"min_length": 4} if more == longer else more
        options = replace(plain, stop_rule=rule, length_penalty=length_penalty, **ours)
        found = search(beams, given, options, ends)
        for row, prompt in enumerate(prompts):
            wanted = origin.generate(
                torch.tensor([begun + prompt]), attention_mask=torch.ones(1, len(begun + prompt), dtype=torch.long),
                num_beams=3, num_return_sequences=3, early_stopping=early_stopping, length_penalty=length_penalty,
                max_new_tokens=12, do_sample=False, return_dict_in_generate=True, output_scores=True, pad_token_id=0,
                eos_token_id=list(ends), **more,
            )  # fmt: skip
            theirs = [tuple(text) for text in wanted.sequences[:, len(begun + prompt) :].tolist()]
            assert found.texts()[row] == [cut_after(text, ends) for text in theirs]
            assert found.scores[row] == pytest.approx(wanted.sequences_scores.tolist(), abs=1e-4)
        ended += sum(text[-1] in ends for row in found.texts() for text in row)
    assert ended


@pytest.mark.parametrize(("name", "settings"), CONTINUED)
@pytest.mark.filterwarnings("ignore")
def test_a_language_model_goes_on_as_its_origin(xformc: CommandLine, tmp_path: Path, name: str, settings: dict) -> None:
    folder = save(tmp_path / "model", name, settings)
    engine, origin = engine_of(xformc, folder, tmp_path), transformers.AutoModelForCausalLM.from_pretrained(folder)
    begun, options = (
        list(engine.manifest.inputs["text"].special.begun),
        replace(engine.manifest.sampling, temperature=0.0),
    )
    random = torch.Generator().manual_seed(3)
    for length in range(1, 9):
        prompt = torch.randint(0, 60, (length,), generator=random).tolist()
        given = torch.tensor([begun + prompt])
        wanted = origin.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=16, do_sample=False)
        found = sample(engine.session, [Prompt(prompt, 0)], replace(options, max_new_tokens=16))
        assert found.tokens[0].tolist() == wanted[0, len(begun) + length :].tolist()
        edits: dict[str, Any] = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "suppress_tokens": [5, 9]}
        wanted = origin.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=16, do_sample=False, **edits
        )
        edited = replace(options, max_new_tokens=16, **{**edits, "suppress_tokens": (5, 9)})
        found = sample(engine.session, [Prompt(prompt, 0)], edited)
        assert found.tokens[0].tolist() == wanted[0, len(begun) + length :].tolist()
    if (name, settings) in SEARCHED:
        assert_searches_alike(engine, origin)


@pytest.mark.parametrize(("name", "settings"), TRANSLATIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_translation_is_that_of_its_origin(xformc: CommandLine, tmp_path: Path, name: str, settings: dict) -> None:
    folder = save(tmp_path / "model", name, settings)
    engine, origin = engine_of(xformc, folder, tmp_path), transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    special, random = engine.manifest.inputs["target"].special, torch.Generator().manual_seed(3)
    forced = settings.get("forced_bos_token_id")
    assert engine.manifest.prefix == (() if forced is None else (forced,))
    ordinary = torch.tensor([one for one in range(60) if one not in special.ids])
    for length in range(1, 9):
        picked = ordinary[torch.randint(0, len(ordinary), (length,), generator=random)].tolist()
        source = torch.tensor([[*picked, special.last]])
        for beams, stopping in ((1, False), (3, False), (3, True)):
            more = {"early_stopping": stopping} if beams > 1 else {}
            wanted = origin.generate(source, max_new_tokens=16, do_sample=False, num_beams=beams, **more)[0].tolist()
            options: Any = {
                "preset": "huggingface",
                "stop_rule": "first" if stopping else "best",
                "max_length_offset": 16,
            }
            found = engine.search(source.numpy(), beam_size=beams, max_length_factor=0.0, **options)
            assert [*special.begun, *found.text(0, 0)] == wanted
