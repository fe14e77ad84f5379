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
    "parallel_residual": False, "shared_layer_norm": False,
    "batch_size": 64, "save_model": "model", "report_every": 50,
}  # fmt: skip
ROTARY: dict[str, Any] = {"position_encoding": False, "max_relative_positions": -1}
LANGUAGE_MODEL: dict[str, Any] = {
    "model_task": "lm", "decoder_type": "transformer_lm", "encoder_type": "rnn", "dec_layers": 2, "enc_layers": 2
}  # fmt: skip
BUCKETS: dict[str, Any] = {"position_encoding": False, "max_relative_positions": 5, "relative_positions_buckets": 4}
VARIANTS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "biased": {"add_qkvbias": True, "add_ffnbias": True, "pos_ffn_activation_fn": "gelu", "share_embeddings": True},
    "shared": {"share_embeddings": True, "share_decoder_embeddings": True, "num_kv": 2},
    "rotary": {**ROTARY, "layer_norm": "rms", "pos_ffn_activation_fn": "silu", "norm_eps": 1e-5},
    "halves": {**ROTARY, "rotary_interleave": False, "rotary_theta": 500, "pos_ffn_activation_fn": "gated-gelu",
               "add_ffnbias": True, "share_decoder_embeddings": True},
    "concat": {"position_encoding_type": "SinusoidalConcat", "num_kv": 1},
    "bare": {"position_encoding": False},
    "buckets": BUCKETS,
    "alibi": {"position_encoding": False, "max_relative_positions": -2},
    "lm": {**LANGUAGE_MODEL, **ROTARY, "layer_norm": "rms", "pos_ffn_activation_fn": "silu", "num_kv": 2},
    "lm-shared": {**LANGUAGE_MODEL, "parallel_residual": True, "shared_layer_norm": True, "add_qkvbias": True,
                  "add_ffnbias": True, "share_decoder_embeddings": True},
    "lm-apart": {**LANGUAGE_MODEL, **BUCKETS, "parallel_residual": True, "pos_ffn_activation_fn": "gelu"},
    "lm-alibi": {**LANGUAGE_MODEL, "position_encoding": False, "max_relative_positions": -2},
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


def is_translation(name: str) -> bool:
    """Whether the variant has an encoder."""
    return "model_task" not in VARIANTS[name]


def vocabularies(options: Mapping[str, Any]) -> dict[str, Any]:
    task = options.get("model_task", "seq2seq")
    target = SOURCE if options.get("share_embeddings") or task == "lm" else TARGET
    return {"src": SOURCE, "tgt": target, "data_task": task, "decoder_start_token": "<s>"}


TABLE = "embeddings.make_embedding.emb_luts.0.weight"


def weights(options: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Random weights by the names of OpenNMT-py."""
    made = _Weights(options)
    if options["model_task"] == "lm":
        made.matrix(f"decoder.{TABLE}", len(SOURCE), WIDTH)
        made.decoder("self_attn")
    else:
        made.matrix(f"encoder.{TABLE}", len(SOURCE), WIDTH)
        if options["share_embeddings"]:
            made.found[f"decoder.{TABLE}"] = made.found[f"encoder.{TABLE}"]
        else:
            made.matrix(f"decoder.{TABLE}", len(TARGET), WIDTH)
        made.encoder()
        made.decoder("self_attn", "context_attn")
        made.norm("encoder.layer_norm")
    made.norm("decoder.layer_norm")
    table = made.found[f"decoder.{TABLE}"]
    made.linear("generator", len(table), WIDTH, bias=True)
    if options["share_decoder_embeddings"]:
        made.found["generator.weight"] = table
    for side in ("encoder", "decoder"):
        if options["position_encoding"] and f"{side}.{TABLE}" in made.found:
            made.found[f"{side}.embeddings.make_embedding.pe.pe"] = torch.from_numpy(_sinusoids()[:, None])
    return made.found


class _Weights:
    """Random weights, which are drawn in the order of the calls."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.random, self.found = options, np.random.default_rng(5), dict[str, torch.Tensor]()

    def matrix(self, name: str, *shape: int) -> None:
        self.found[name] = torch.from_numpy(self.random.normal(size=shape).astype(np.float32) * 0.5)

    def linear(self, name: str, outer: int, along: int, *, bias: bool) -> None:
        self.matrix(f"{name}.weight", outer, along)
        if bias:
            self.matrix(f"{name}.bias", outer)

    def norm(self, name: str) -> None:
        self.matrix(f"{name}.weight", WIDTH)
        self.found[f"{name}.weight"] += 1
        if self.options["layer_norm"] != "rms":
            self.matrix(f"{name}.bias", WIDTH)

    def attention(self, name: str) -> None:
        narrow, biased = WIDTH // HEADS * (self.options["num_kv"] or HEADS), self.options["add_qkvbias"]
        for part, outer in (("keys", narrow), ("values", narrow), ("query", WIDTH)):
            self.linear(f"{name}.linear_{part}", outer, WIDTH, bias=biased)
        self.linear(f"{name}.final_linear", WIDTH, WIDTH, bias=biased)
        if self.options["relative_positions_buckets"] and name.endswith("self_attn"):
            self.matrix(f"{name}.relative_attention_bias.weight", self.options["relative_positions_buckets"], HEADS)

    def feed_forward(self, name: str) -> None:
        gated = self.options["pos_ffn_activation_fn"] in ("silu", "gated-gelu")
        for part in ("w_1", "w_3") if gated else ("w_1",):
            self.linear(f"{name}.{part}", INNER, WIDTH, bias=self.options["add_ffnbias"])
        self.linear(f"{name}.w_2", WIDTH, INNER, bias=self.options["add_ffnbias"])
        if not self.options["parallel_residual"]:
            self.norm(f"{name}.layer_norm")

    def encoder(self) -> None:
        for layer in range(self.options["enc_layers"]):
            self.attention(f"encoder.transformer.{layer}.self_attn")
            self.feed_forward(f"encoder.transformer.{layer}.feed_forward")
            self.norm(f"encoder.transformer.{layer}.layer_norm")

    def decoder(self, *attentions: str) -> None:
        for layer in range(self.options["dec_layers"]):
            name = f"decoder.transformer_layers.{layer}"
            for part in attentions:
                self.attention(f"{name}.{part}")
            self.feed_forward(f"{name}.feed_forward")
            for number in range(len(attentions)):
                self.norm(f"{name}.layer_norm_{number + 1}")
            if self.options["parallel_residual"] and not self.options["shared_layer_norm"]:
                self.norm(f"{name}.layer_norm_res")


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
    if not hasattr(model, "encoder"):
        model.decoder.init_state()
        return model.generator(model.decoder(target[..., None], tgt_pad_mask=(target == 1)[:, None])[0])
    lengths = (source != 1).sum(1)
    states, final, _ = model.encoder(source[..., None], lengths)
    model.decoder.init_state(source[..., None], states, final)
    return model.generator(model.decoder(target[..., None], states, src_len=lengths)[0])


def _greedy(model: Any, text: list[int]) -> list[int]:
    """The most likely token after the other, at most floor(1.25 n) + 5, as its greedy search takes them.

    A language model writes at most 8 behind the text.
    """
    alone = not hasattr(model, "encoder")
    written = [2, *text] if alone else [2]
    begun, most = len(written), 8 if alone else len(text) * 5 // 4 + 5
    while len(written) < begun + most and (len(written) == begun or written[-1] != 3):
        written.append(int(_logits(model, torch.tensor([text]), torch.tensor([written]))[0, -1].argmax()))
    return written[begun:]


if __name__ == "__main__":
    main()
