"""Writes small checkpoints of OpenNMT-py from random weights, and records what it computes with them.

`python -m tests.imports.opennmt_files` writes opennmt.json anew; it needs OpenNMT-py, whose version 3.5.1 gave the
numbers.
"""

import argparse
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

RECORDED = Path(__file__).with_name("opennmt.json")
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE, TARGET = [*SPECIAL, *"abcdefgh"], [*SPECIAL, *"hgfedcbaxyz"]
WIDTH, INNER, HEADS = 8, 12, 4
OPTIONS: dict[str, Any] = {
    "encoder_type": "transformer", "decoder_type": "transformer", "model_type": "text", "model_task": "seq2seq",
    "enc_layers": 2, "dec_layers": 1, "enc_hid_size": WIDTH, "dec_hid_size": WIDTH, "src_word_vec_size": WIDTH,
    "tgt_word_vec_size": WIDTH, "heads": HEADS, "transformer_ff": INNER, "position_encoding": True,
    "position_encoding_type": "SinusoidalInterleaved", "self_attn_type": "scaled-dot", "dropout": [0.1],
    "attention_dropout": [0.1], "share_embeddings": False, "share_decoder_embeddings": False, "copy_attn": False,
    "add_qkvbias": False, "add_ffnbias": False, "num_kv": 0, "layer_norm": "standard", "norm_eps": 1e-6,
    "pos_ffn_activation_fn": "relu", "max_relative_positions": 0, "relative_positions_buckets": 0,
    "rotary_interleave": True, "rotary_theta": 10000, "rotary_dim": 0, "sliding_window": 0, "lora_layers": [],
    "batch_size": 64, "save_model": "model", "report_every": 50,
}  # fmt: skip
ROTARY: dict[str, Any] = {"position_encoding": False, "max_relative_positions": -1}
VARIANTS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "biased": {"add_qkvbias": True, "add_ffnbias": True, "pos_ffn_activation_fn": "gelu", "share_embeddings": True},
    "shared": {"share_embeddings": True, "share_decoder_embeddings": True, "num_kv": 2},
    "rotary": {**ROTARY, "layer_norm": "rms", "pos_ffn_activation_fn": "silu", "norm_eps": 1e-5},
    "halves": {**ROTARY, "rotary_interleave": False, "rotary_theta": 500, "pos_ffn_activation_fn": "gated-gelu",
               "add_ffnbias": True, "share_decoder_embeddings": True},
    "concat": {"position_encoding_type": "SinusoidalConcat", "num_kv": 1},
    "bare": {"position_encoding": False},
}  # fmt: skip
GIVEN = [[5, 9, 7, 11, 4], [6, 8, 10, 1, 1]], [[2, 5, 6, 9], [2, 8, 11, 4]]
TEXTS = [[4], [5, 9, 7], [11, 6, 6, 10], [8, 4, 5, 9, 7, 7]]


def write_opennmt(path: Path, **changed: Any) -> Path:
    """Write a checkpoint. `changed` are its options; `vocab` is a part of the checkpoint."""
    parts = {"vocab": vocabularies(changed), **{key: changed.pop(key) for key in ("vocab",) if key in changed}}
    given = {**OPTIONS, **changed}
    state = weights(given)
    generator = {name.removeprefix("generator."): state.pop(name) for name in [*state] if name.startswith("generator.")}
    options = argparse.Namespace(**given)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": state, "generator": generator, "opt": options, "optim": {"decay_step": 3}, **parts}, path)
    return path


def vocabularies(options: Mapping[str, Any]) -> dict[str, Any]:
    shared = options.get("share_embeddings", False)
    return {"src": SOURCE, "tgt": SOURCE if shared else TARGET, "data_task": "seq2seq", "decoder_start_token": "<s>"}


def weights(options: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Random weights by the names of OpenNMT-py."""
    random, found = np.random.default_rng(5), dict[str, torch.Tensor]()
    qkv, biased = options["add_qkvbias"], options["add_ffnbias"]
    gated, rms = options["pos_ffn_activation_fn"] in ("silu", "gated-gelu"), options["layer_norm"] == "rms"
    narrow = WIDTH // HEADS * (options["num_kv"] or HEADS)

    def matrix(name: str, *shape: int) -> None:
        found[name] = torch.from_numpy(random.normal(size=shape).astype(np.float32) * 0.5)

    def linear(name: str, outer: int, along: int, bias: bool) -> None:
        matrix(f"{name}.weight", outer, along)
        if bias:
            matrix(f"{name}.bias", outer)

    def norm(name: str) -> None:
        matrix(f"{name}.weight", WIDTH)
        found[f"{name}.weight"] += 1
        if not rms:
            matrix(f"{name}.bias", WIDTH)

    def attention(name: str) -> None:
        for part, outer in (("keys", narrow), ("values", narrow), ("query", WIDTH)):
            linear(f"{name}.linear_{part}", outer, WIDTH, qkv)
        linear(f"{name}.final_linear", WIDTH, WIDTH, qkv)

    def feed_forward(name: str) -> None:
        for part in ("w_1", "w_3") if gated else ("w_1",):
            linear(f"{name}.{part}", INNER, WIDTH, biased)
        linear(f"{name}.w_2", WIDTH, INNER, biased)
        norm(f"{name}.layer_norm")

    table = "embeddings.make_embedding.emb_luts.0.weight"
    matrix(f"encoder.{table}", len(SOURCE), WIDTH)
    if options["share_embeddings"]:
        found[f"decoder.{table}"] = found[f"encoder.{table}"]
    else:
        matrix(f"decoder.{table}", len(TARGET), WIDTH)
    for layer in range(options["enc_layers"]):
        attention(f"encoder.transformer.{layer}.self_attn")
        feed_forward(f"encoder.transformer.{layer}.feed_forward")
        norm(f"encoder.transformer.{layer}.layer_norm")
    for layer in range(options["dec_layers"]):
        name = f"decoder.transformer_layers.{layer}"
        for part in ("self_attn", "context_attn"):
            attention(f"{name}.{part}")
        feed_forward(f"{name}.feed_forward")
        for part in ("layer_norm_1", "layer_norm_2"):
            norm(f"{name}.{part}")
    norm("encoder.layer_norm")
    norm("decoder.layer_norm")
    linear("generator", len(found[f"decoder.{table}"]), WIDTH, True)
    if options["share_decoder_embeddings"]:
        found["generator.weight"] = found[f"decoder.{table}"]
    if options["position_encoding"]:
        for side in ("encoder", "decoder"):
            found[f"{side}.embeddings.make_embedding.pe.pe"] = torch.from_numpy(_sinusoids()[:, None])
    return found


def _sinusoids(count: int = 40) -> np.ndarray:
    """The positions that OpenNMT-py stores, by Vaswani et al. (2017), section 3.5; an import computes them itself."""
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, WIDTH).astype(np.float32)


def main() -> None:
    """Record the logits and the greedy translations of OpenNMT-py."""
    names = ("opts", "inputters.inputter", "model_builder", "utils.parse")
    opts, inputter, builder, parse = (importlib.import_module(f"onmt.{name}") for name in names)
    parser: Any = parse.ArgumentParser()
    opts.model_opts(parser)
    recorded: dict[str, Any] = {}
    for name, changed in VARIANTS.items():
        given = {**vars(parser.parse_known_args([])[0]), **OPTIONS, **changed, "optim": "adam", "world_size": 1}
        given |= {"parallel_mode": "data_parallel", "param_init": 0.1, "param_init_glorot": False, "use_ckpting": []}
        given |= {"freeze_word_vecs_enc": False, "freeze_word_vecs_dec": False}
        known = inputter.dict_to_vocabs(vocabularies(changed))
        model: Any = builder.build_base_model(argparse.Namespace(**given), known).eval()
        state = {key: one for key, one in weights({**OPTIONS, **changed}).items() if not key.endswith("pe.pe")}
        missing, unexpected = _load(model, state)
        assert not unexpected and all(key.endswith("pe.pe") for key in missing), (missing, unexpected)
        source, target = (torch.tensor(ids) for ids in GIVEN)
        with torch.no_grad():
            logits = _logits(model, source, target)
            texts = [_greedy(model, text) for text in TEXTS]
        rounded = [[[round(one, 5) for one in row] for row in rows] for rows in logits.tolist()]
        recorded[name] = {"logits": rounded, "texts": texts}
    RECORDED.write_text(json.dumps(recorded) + "\n")


def _load(model: Any, state: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
    found = torch.nn.Module.load_state_dict(model, dict(state), strict=False)
    return found.missing_keys, found.unexpected_keys


def _logits(model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    lengths = (source != 1).sum(1)
    states, final, _ = model.encoder(source[..., None], lengths)
    model.decoder.init_state(source[..., None], states, final)
    return model.generator(model.decoder(target[..., None], states, src_len=lengths)[0])


def _greedy(model: Any, text: list[int]) -> list[int]:
    """The most likely token after the other, at most floor(1.25 n) + 5, as its greedy search takes them."""
    written = [2]
    while len(written) < len(text) * 5 // 4 + 6 and written[-1] != 3:
        written.append(int(_logits(model, torch.tensor([text]), torch.tensor([written]))[0, -1].argmax()))
    return written[1:]


if __name__ == "__main__":
    main()
