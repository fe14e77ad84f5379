"""Writes small models of Eole from random weights, and records what Eole computes with them.

`python -m tests.imports.eole_files` writes eole.json anew; it needs Eole, whose version 0.6.4 gave the numbers. With
`--out FOLDER` it writes the models as Eole saves them, and Eole's texts for random sources, which
`python -m benchmarks.origins` compares.
"""

import argparse
import importlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

RECORDED = Path(__file__).with_name("eole.json")
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE, TARGET = [*SPECIAL, *"abcdefgh"], [*SPECIAL, *"hgfedcbaxyz"]
SIZES: dict[str, Any] = {"hidden_size": 8, "heads": 4, "transformer_ff": 12}
TRANSLATION: dict[str, Any] = {
    **SIZES, "architecture": "transformer", "encoder": {"layers": 2}, "decoder": {"layers": 1}
}  # fmt: skip
LANGUAGE_MODEL: dict[str, Any] = {**SIZES, "architecture": "transformer_lm", "layers": 2}
BIASED: dict[str, Any] = {"add_qkvbias": True, "add_final_linear_bias": True, "add_ffnbias": True}
LLAMA3: dict[str, Any] = {
    "rotary_interleave": False, "rotary_theta": 500, "scaling_type": "llama3", "original_max_position_embeddings": 4
}  # fmt: skip


def _positions(kind: str | None, **more: Any) -> dict[str, Any]:
    return {"embeddings": {"word_vec_size": 8, "position_encoding_type": kind, **more}}


VARIANTS: Mapping[str, dict[str, Any]] = {
    "plain": {**TRANSLATION, **_positions("SinusoidalInterleaved")},
    "shared": {**TRANSLATION, **_positions("SinusoidalConcat"), **BIASED, "share_embeddings": True,
               "share_decoder_embeddings": True, "mlp_activation_fn": "gelu", "layer_norm": "standardFP32"},
    "rotary": {**TRANSLATION, **_positions("Rotary"), "rope_config": {"rotary_interleave": False}, "layer_norm": "rms",
               "norm_eps": 1e-6, "mlp_activation_fn": "gated-silu", "heads_kv": 2, "generator_bias": False},
    "learned": {**TRANSLATION, **_positions("Learned", n_positions=40), "mlp_activation_fn": "gelu-tanh", "heads_kv": 1,
                "share_decoder_embeddings": True, "add_qkvbias": True, "add_key_bias": False,
                "add_final_linear_bias": False},
    "bare": {**TRANSLATION, **_positions(None), "mlp_activation_fn": "silu", "head_dim": 4},
    "alibi": {**TRANSLATION, **_positions("Alibi"), "layer_norm": "gemma-rms", "mlp_activation_fn": "gated-gelu",
              "add_ffnbias": True, "share_embeddings": True},
    "llama": {**LANGUAGE_MODEL, **_positions("Rotary"), "rope_config": LLAMA3, "layer_norm": "rms", "heads_kv": 2,
              "mlp_activation_fn": "gated-silu", "generator_bias": False},
    "gpt2": {**LANGUAGE_MODEL, **_positions("Learned", n_positions=40), **BIASED, "mlp_activation_fn": "gelu",
             "share_decoder_embeddings": True},
    "phi": {**LANGUAGE_MODEL, **_positions("Rotary"), **BIASED, "heads": 2, "parallel_residual": True,
            "shared_layer_norm": True, "rope_config": {"rotary_dim": 2}, "mlp_activation_fn": "gelu-tanh"},
    "neox": {**LANGUAGE_MODEL, **_positions("Rotary"), "rope_config": {"rotary_theta": 300}, "parallel_residual": True},
    "qwen3": {**LANGUAGE_MODEL, **_positions("Rotary"), "layer_norm": "rms", "heads_kv": 2, "head_dim": 4,
              "query_norm": True, "key_norm": True, "sliding_window": 3, "mlp_activation_fn": "gated-silu",
              "rope_config": {"rotary_interleave": False}},
    "gemma": {**LANGUAGE_MODEL, **_positions("Rotary", normalize=True), "rope_config": {"rotary_interleave": False},
              "layer_norm": "gemma-rms", "mlp_activation_fn": "gated-gelu-tanh", "share_decoder_embeddings": True,
              "generator_bias": False},
    "bloom": {**LANGUAGE_MODEL, **_positions("Alibi")},
    "sinusoids": {**LANGUAGE_MODEL, **_positions("SinusoidalInterleaved")},
    "buckets": {**LANGUAGE_MODEL, **_positions("Relative", n_positions=5), "relative_positions_buckets": 4},
}  # fmt: skip
GIVEN = [[5, 9, 7, 11, 4], [6, 8, 10, 1, 1]], [[2, 5, 6, 9], [2, 8, 11, 4]]
MOST = 20
TEXTS = ["a", "b f d", "h c c g", "e a b f d d"]


def is_translation(name: str) -> bool:
    """Whether the variant has an encoder."""
    return VARIANTS[name]["architecture"] == "transformer"


def vocabulary(name: str) -> dict[str, Any]:
    """The content of vocab.json."""
    alone = VARIANTS[name].get("share_embeddings", False) or not is_translation(name)
    special = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    return {"src": SOURCE, "tgt": SOURCE if alone else TARGET, "decoder_start_token": "<s>", "specials": special}


def recorded(name: str) -> dict[str, Any]:
    """What Eole has saved and computed: `config`, `shapes`, `logits`, and `beam1` and `beam5`, the tokens for TEXTS."""
    return json.loads(RECORDED.read_text())[name]


def weights(shapes: Mapping[str, Sequence[int]], scale: float = 0.5) -> dict[str, torch.Tensor]:
    """Random weights of these shapes; gains are about 1."""
    random, found = np.random.default_rng(5), dict[str, torch.Tensor]()
    for name, shape in sorted(shapes.items()):
        array = torch.from_numpy(random.normal(size=shape).astype(np.float32) * scale)
        gain = name.endswith("norm.weight")
        found[name] = torch.ones(*shape) if name.endswith("layer_scalar") else array + 1 if gain else array
    return found


def write_eole(folder: Path, name: str, *, shards: int = 1, **changed: Any) -> Path:
    """Write the files that Eole has saved. `changed` are settings of the model, or whole sections of the config."""
    content = recorded(name)
    config = content["config"]
    for key, value in changed.items():
        (config if key in ("training", "inference") else config["model"])[key] = value
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps(vocabulary(name)))
    found = weights(content["shapes"])
    for part in range(shards):
        save_file({key: found[key] for key in sorted(found)[part::shards]}, folder / f"model.{part:02d}.safetensors")
    return folder


def eole_search(step: Callable[[list[list[int]]], torch.Tensor], beam: int, limit: int) -> list[int]:
    """The tokens that Eole's beam search finds, written anew from its rules. `step` gives the logits after each of the
    texts of a beam.

    The score of n tokens is their log probability / (n + 1). A hypothesis that ends keeps its place in the beam, with a
    score that nothing continues. The search ends as soon as the best one of the beam has ended.
    """
    texts, ended = [list[int]() for _ in range(beam)], list[tuple[float, list[int]]]()
    sums = torch.tensor([0.0] + [-torch.inf] * (beam - 1))
    for count in range(1, limit + 1):
        scores = (step(texts).log_softmax(-1) + sums[:, None]) / (count + 1)
        best, places = scores.flatten().topk(beam)
        texts = [[*texts[place // scores.shape[1]], place % scores.shape[1]] for place in places.tolist()]
        over = [text[-1] == SPECIAL.index("</s>") or count == limit for text in texts]
        ended += [(score, text) for score, text, is_over in zip(best.tolist(), texts, over, strict=True) if is_over]
        if over[0]:
            break
        sums = (best * (count + 1)).masked_fill(torch.tensor(over), -65504.0)
    return max(ended, key=lambda one: one[0])[1]


def main() -> None:
    """Record the configs, the logits and the texts of Eole, or write models and texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write models and the texts of random sources into this folder")
    parser.add_argument("--texts", type=int, default=40, help="the number of sources of each model")
    given = parser.parse_args()
    if given.out is not None:
        for name in VARIANTS:
            _write_texts(given.out / name, name, given.texts)
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in VARIANTS:
            folder = Path(temporary) / name
            shapes = _save(folder, name)
            config = json.loads((folder / "config.json").read_text())
            kept = {"model": config["model"], "training": {"dropout": [0.1]}}
            found[name] = {"config": kept, "shapes": shapes, "logits": _logits(folder, name)}
            found[name] |= {f"beam{beam}": _texts(folder, TEXTS, beam_size=beam) for beam in (1, 5)}
    RECORDED.write_text(json.dumps(found) + "\n")


def _save(folder: Path, name: str) -> dict[str, list[int]]:
    """Have Eole make a model and save it with random weights; the shapes of what it has saved."""
    saver, run = importlib.import_module("eole.models.model_saver"), importlib.import_module("eole.config.run")
    models, inputs = importlib.import_module("eole.models.model"), importlib.import_module("eole.inputters.inputter")
    settings = {"model_path": str(folder), "optim": "adam", "dropout": [0.1]}
    config = run.TrainConfig(data={}, src_vocab="none", tgt_vocab="none", model=VARIANTS[name], training=settings)
    vocabs = inputs.dict_to_vocabs(vocabulary(name))
    kind: Any = models.get_model_class(config.model)
    model = kind.for_training(config.model, vocabs, config.training, device_id=-1)
    twice = {"generator.weight": "share_decoder_embeddings", "tgt_emb.embeddings.weight": "share_embeddings"}
    unsaved = [key for key, option in twice.items() if VARIANTS[name].get(option)]
    state = {key: one for key, one in model.state_dict().items() if not key.endswith(".pe.pe") and key not in unsaved}
    random = weights({key: list(one.shape) for key, one in state.items()})
    for key, one in state.items():
        one.copy_(random[key])
    optimizer: Any = argparse.Namespace(state_dict=dict)
    saver.TrainingModelSaver(str(folder), model, config, vocabs, optimizer, device_id=-1)._save(1)
    from safetensors.torch import load_file

    saved = load_file(folder / "model.00.safetensors")
    return {key: list(one.shape) for key, one in saved.items() if not key.endswith(".pe.pe")}


def _engine(folder: Path, **options: Any) -> Any:
    run, engine = importlib.import_module("eole.config.run"), importlib.import_module("eole.inference_engine")
    config = run.PredictConfig(model_path=[str(folder)], src="none", gpu_ranks=[], world_size=0, **options)
    return engine.InferenceEnginePY(config)


def _logits(folder: Path, name: str) -> list[Any]:
    """The logits of the model that Eole has loaded: for GIVEN, or of a language model for its second half."""
    model, (source, target) = _engine(folder).predictor.model, (torch.tensor(ids) for ids in GIVEN)
    with torch.no_grad():
        if is_translation(name):
            more = torch.cat([target, target[:, :1]], 1)  # it leaves out the last token
            states = model(source, more, (source != 1).sum(1))[0]
        else:
            states = model(target, None, None)[0]
        logits = model.generator(states)
    return [[[round(one, 5) for one in row] for row in rows] for rows in logits.tolist()]


def _texts(folder: Path, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """The tokens that Eole's predictor writes for each text alone, with the end token; at most MOST."""
    engine, found = _engine(folder, max_length=MOST, **options), list[list[int]]()
    for text in texts:
        [(batch, _)] = engine._build_inference_iterator(src=[text])
        found.append(engine.predictor.predict_batch(batch, False)["predictions"][0][0].tolist())
    return found


def _write_texts(folder: Path, name: str, count: int) -> None:
    """Write a model, and Eole's texts for random sources with beams of 1 and 5."""
    _save(folder, name)
    random = np.random.default_rng(11)
    texts = [" ".join(random.choice(SOURCE[4:], size=random.integers(1, 8))) for _ in range(count)]
    for beam in (1, 5):
        rows = zip(texts, _texts(folder, texts, beam_size=beam), strict=True)
        lines = [json.dumps({"text": source, "ids": ids}) for source, ids in rows]
        (folder / f"beam{beam}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
