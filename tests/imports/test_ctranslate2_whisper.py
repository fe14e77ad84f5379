"""Whisper in CTranslate2's format becomes the run that the folder of Hugging Face becomes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, mistake
from safetensors.numpy import load_file

from tests.exports.test_hugging_face import done
from tests.imports.foreign import FAMILIES, write_foreign
from tests.imports.test_ctranslate2 import write_model
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights

WIDTH = 8
TOKENS = [*"abcdefghijklmnopq", "<|notimestamps|>", "<|endoftext|>", "<|startoftranscript|>"]
NAMES = {
    "self_attn": "self_attention",
    "encoder_attn": "attention",
    "self_attn_layer_norm": "self_attention/layer_norm",
    "encoder_attn_layer_norm": "attention/layer_norm",
    "final_layer_norm": "ffn/layer_norm",
    "fc1": "ffn/linear_0",
    "fc2": "ffn/linear_1",
}


def stored(origin: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of Hugging Face's folder as CTranslate2 stores them, with its numbers."""
    origin = {name.removeprefix("model."): array for name, array in origin.items()}
    found: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        found[f"{side}/num_heads"] = np.int16(2)
        for name, array in origin.items():
            parts = name.split(".")
            if parts[0] != side or "attn" in parts[-3]:
                continue
            kind = parts[-1]
            if "norm" in parts[-2]:
                kind = {"weight": "gamma", "bias": "beta"}[kind]
            inner = [f"layer_{parts[2]}", NAMES[parts[3]]] if parts[1] == "layers" else parts[1:-1]
            place = "/".join([side, *inner, kind])
            place = place.replace("embed_tokens", "embeddings")
            whole = array.reshape(WIDTH, -1, 3) if "conv" in place and kind == "weight" else array
            found[place.replace("embed_positions/weight", "position_encodings/encodings")] = whole
        for layer in range(99):
            start = f"{side}.layers.{layer}"
            if f"{start}.fc1.weight" not in origin:
                break
            for own in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                maps = [["q_proj", "k_proj", "v_proj"], ["out_proj"]]
                maps = maps if own == "self_attn" else [["q_proj"], ["k_proj", "v_proj"], ["out_proj"]]
                for index, several in enumerate(maps):
                    to = f"{side}/layer_{layer}/{NAMES[own]}/linear_{index}"
                    arrays = [origin[f"{start}.{own}.{one}.weight"] for one in several]
                    zeros = np.zeros(WIDTH, np.float32)
                    found[f"{to}/weight"] = np.concatenate(arrays)
                    found[f"{to}/bias"] = np.concatenate(
                        [origin.get(f"{start}.{own}.{one}.bias", zeros) for one in several]
                    )
    return {**found, "decoder/activation": np.int8(3), "decoder/pre_norm": np.int8(1)}


def write(folder: Path, found: Mapping[str, Any], **config: Any) -> Path:
    write_model(
        folder,
        found,
        "WhisperSpec",
        layer_norm_epsilon=None,
        suppress_ids=[3, 19],
        suppress_ids_begin=[18, 2],
        **config,
    )
    (folder / "shared_vocabulary.json").unlink()
    (folder / "vocabulary.json").write_text(json.dumps(TOKENS))
    return folder


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in a folder of Hugging Face."""
    folder = tmp_path_factory.mktemp("whisper") / "model"
    write_foreign(folder, {**FAMILIES["whisper"], "vocab_size": len(TOKENS)})
    return folder


def test_it_is_read_as_the_folder_that_it_was_made_from(xformc: CommandLine, origin: Path, tmp_path: Path) -> None:
    tensors = load_file(origin / "model.safetensors")
    done(xformc, "import", origin, "-o", tmp_path / "wanted")
    done(xformc, "import", write(tmp_path / "model", stored(tensors)), "-o", tmp_path / "found")
    specs = [load_spec(tmp_path / name / "spec.yaml") for name in ("wanted", "found")]
    weights = [
        load_weights(tmp_path / name, spec.graph()) for name, spec in zip(("wanted", "found"), specs, strict=True)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    assert {**specs[0].sizes} == {**specs[1].sizes}
    decode = specs[1].decode
    assert (decode.beam_size, decode.suppress_tokens, decode.suppress_first) == (5, [3, 19], [18, 2])
    assert specs[1].inputs["text"].special == specs[0].inputs["text"].special


WRONG: list[tuple[dict[str, Any], dict[str, Any], Any, str]] = [
    ({"decoder/activation": np.int8(0)}, {}, TOKENS, "no Whisper as it is published: decoder/activation is 0"),
    ({"decoder/other/weight": np.zeros((2, 2), np.float32)}, {}, TOKENS, "that Whisper has not: decoder/other"),
    ({"encoder/conv1/weight": np.zeros(3, np.float32)}, {}, TOKENS, "has no encoder.conv1.weight of 3 axes"),
    ({"decoder/layer_0/attention/linear_1/bias": np.ones(16, np.float32)}, {}, TOKENS, "k_proj.bias is not 0"),
    ({"decoder/layer_0/attention/linear_1/bias": np.ones(15, np.float32)}, {}, TOKENS, "15 rows, which are no 2 maps"),
    ({}, {"suppress_ids": ["a"]}, TOKENS, "suppress_ids must be a list of token ids"),
    ({}, {}, TOKENS[:-1], "its vocabulary lacks <|startoftranscript|>"),
    ({}, {"layer_norm_epsilon": 1e-6}, TOKENS, "layer_norm_epsilon must be 1e-05"),
    (
        {"decoder/layer_0/self_attention/queries_scale": np.float32(2)},
        {},
        TOKENS,
        "layer_0/self_attention/queries_scale is 2",
    ),
    ({"decoder/scale_outputs": np.int8(1)}, {}, TOKENS, "decoder/scale_outputs is 1"),
    (
        {"decoder/projection/weight": np.zeros((3, 3), np.float32)},
        {},
        TOKENS,
        "must have the numbers of the embeddings",
    ),
    ({}, {}, ["more", *TOKENS], "its vocabulary has 21 tokens, and the model 20"),
    ({}, {}, {"a": 1}, "must be a list of tokens"),
    ({}, {}, None, "there is neither vocabulary.json nor vocabulary.txt"),
]


@pytest.mark.parametrize("case", WRONG, ids=[message for *_, message in WRONG])
def test_what_whisper_is_not_is_refused_by_name(
    xformc: CommandLine, origin: Path, tmp_path: Path, case: tuple[dict[str, Any], dict[str, Any], Any, str]
) -> None:
    change, config, tokens, message = case
    folder = write(tmp_path / "model", {**stored(load_file(origin / "model.safetensors")), **change})
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    (folder / "vocabulary.json").unlink()
    if tokens is not None:
        (folder / "vocabulary.json").write_text(json.dumps(tokens))
    assert message in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
