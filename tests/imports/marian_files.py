"""Writes small models of Marian with an SSRU decoder, as an archive and as a binary file of int8; and computes them."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

SIZE, WIDTH, HEADS, INNER = 12, 8, 2, 12
OPTIONS = f"""type: transformer
dec-cell: ssru
dec-depth: 1
dim-emb: {WIDTH}
dim-vocabs: [{SIZE}, {SIZE}]
enc-depth: 1
tied-embeddings-all: true
transformer-decoder-autoreg: rnn
transformer-dim-ffn: {INNER}
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-heads: {HEADS}
transformer-no-projection: false
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-postprocess-top: ""
transformer-preprocess: ""
transformer-train-position-embeddings: false
"""
WORDS = "".join(f"{word}: {index}\n" for index, word in enumerate(["</s>", "<unk>", *"abcdefghij"]))
INT8, INTGEMM8, FLOAT32 = 0x101, 0x4101, 0x404

Weights = dict[str, np.ndarray]


def marian_weights() -> Weights:
    """Random weights of one layer on each side, which int8 represents exactly."""
    draw = np.random.default_rng(0)
    shapes: dict[str, tuple[int, int]] = {"Wemb": (SIZE, WIDTH), "decoder_ff_logit_out_b": (1, SIZE)}
    for part in ("encoder_l1_self", "decoder_l1_context"):
        shapes |= {f"{part}_W{one}": (WIDTH, WIDTH) for one in "qkvo"}
        shapes |= {f"{part}_b{one}": (1, WIDTH) for one in "qkvo"}
        shapes |= {f"{part}_Wo_ln_{one}": (1, WIDTH) for one in ("scale", "bias")}
    for side in ("encoder_l1_ffn", "decoder_l1_ffn"):
        shapes |= {f"{side}_W1": (WIDTH, INNER), f"{side}_b1": (1, INNER), f"{side}_W2": (INNER, WIDTH)}
        shapes |= {f"{side}_b2": (1, WIDTH), f"{side}_ffn_ln_scale": (1, WIDTH), f"{side}_ffn_ln_bias": (1, WIDTH)}
    rnn = "decoder_l1_rnn"
    shapes |= {f"{rnn}_W": (WIDTH, WIDTH), f"{rnn}_Wf": (WIDTH, WIDTH), f"{rnn}_bf": (1, WIDTH)}
    shapes |= {f"{rnn}_ffn_ln_scale": (1, WIDTH), f"{rnn}_ffn_ln_bias": (1, WIDTH)}
    return {name: draw.integers(-127, 128, shape).astype(np.float32) / 128 for name, shape in shapes.items()}


def write_marian_npz(folder: Path, weights: Weights, options: str = OPTIONS) -> Path:
    """Write a folder with an archive and its vocabularies."""
    folder.mkdir(parents=True, exist_ok=True)
    config = np.frombuffer(options.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **weights, **{"special:model.yml": config})  # pyright: ignore[reportArgumentType]
    (folder / "model.npz.decoder.yml").write_text(
        "vocabs: [/a/vocab.yml, /b/vocab.yml]\nbeam-size: 2\nnormalize: 0.6\n"
    )
    (folder / "vocab.yml").write_text(WORDS)
    return folder


def write_marian_binary(folder: Path, weights: Weights, options: str = OPTIONS) -> Path:
    """Write a folder with a binary file, whose matrices are int8 with the multiplier 128."""
    folder.mkdir(parents=True, exist_ok=True)
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, array in sorted(weights.items()):
        if array.shape[0] > 1:
            lies = array if name == "Wemb" else array.T
            content = (lies * 128).astype(np.int8).tobytes() + struct.pack("<f", 128.0)
            items.append((name, INTGEMM8, array.shape, _padded(content)))
            items.append((f"{name}_QuantMultA", FLOAT32, (1, 1), _padded(struct.pack("<f", 20.0))))
        else:
            items.append((name, FLOAT32, array.shape, _padded(array.tobytes())))
    config = options.encode() + b"\0"
    items.append(("special:model.yml", INT8, (len(config),), config))
    names = [name.encode() + b"\0" for name, *_ in items]
    head = struct.pack("<QQ", 1, len(items))
    for name, (_, kind, shape, content) in zip(names, items, strict=True):
        head += struct.pack("<QQQQ", len(name), kind, len(shape), len(content))
    head += b"".join(names) + b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    head += struct.pack("<Q", 24) + bytes(24)
    (folder / "model.bin").write_bytes(head + b"".join(content for *_, content in items))
    (folder / "config.yml").write_text("vocabs: [vocab.yml, vocab.yml]\nbeam-size: 2\nnormalize: 0.6\n")
    (folder / "vocab.yml").write_text(WORDS)
    return folder


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 256)


def marian_logits(weights: Weights, source: list[int], target: list[int]) -> torch.Tensor:
    """The logits [target + 1, SIZE] after each token of `target` and before the first, written out plainly."""
    w = {name: torch.tensor(array) for name, array in weights.items()}
    memory = _embedded(w["Wemb"][source])
    memory = _attention(w, "encoder_l1_self", memory, memory)
    memory = _feed_forward(w, "encoder_l1_ffn", memory)
    x = _embedded(torch.cat([torch.zeros(1, WIDTH), w["Wemb"][target]]))
    state, outputs = torch.zeros(WIDTH), []
    for row in x:
        keep = torch.sigmoid(row @ w["decoder_l1_rnn_Wf"] + w["decoder_l1_rnn_bf"][0])
        state = keep * state + (1 - keep) * (row @ w["decoder_l1_rnn_W"])
        outputs.append(torch.relu(state))
    x = _norm(w, "decoder_l1_rnn_ffn_ln", x + torch.stack(outputs))
    x = _attention(w, "decoder_l1_context", x, memory)
    x = _feed_forward(w, "decoder_l1_ffn", x)
    return x @ w["Wemb"].T + w["decoder_ff_logit_out_b"]


def _embedded(rows: torch.Tensor) -> torch.Tensor:
    rates = torch.exp(-torch.arange(WIDTH // 2) * np.log(10000) / (WIDTH // 2 - 1))
    angles = torch.arange(len(rows))[:, None] * rates
    return rows * WIDTH**0.5 + torch.cat([angles.sin(), angles.cos()], 1)


def _norm(w: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (WIDTH,), w[f"{name}_scale"][0], w[f"{name}_bias"][0], 1e-6)


def _attention(w: dict[str, torch.Tensor], name: str, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    query, key, value = [
        (one @ w[f"{name}_W{key}"] + w[f"{name}_b{key}"]).unflatten(1, (HEADS, -1)).transpose(0, 1)
        for key, one in (("q", x), ("k", memory), ("v", memory))
    ]
    heads = functional.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
    return _norm(w, f"{name}_Wo_ln", x + heads @ w[f"{name}_Wo"] + w[f"{name}_bo"])


def _feed_forward(w: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    inner = torch.relu(x @ w[f"{name}_W1"] + w[f"{name}_b1"])
    return _norm(w, f"{name}_ffn_ln", x + inner @ w[f"{name}_W2"] + w[f"{name}_b2"])
