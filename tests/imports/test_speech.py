"""Small random models of transformers that hear, other than Whisper, write or label the same after an import."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.imports.foreign import FAMILIES, write_config, write_foreign
from tests.imports.test_images import save_varied
from xformc.imports.sounds import read_sounds
from xformc.runtime.engine import load

transformers: Any = pytest.importorskip("transformers")

Samples = NDArray[np.float32]
MOONSHINE: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 40, "intermediate_size": 24, "max_position_embeddings": 24,
    "initializer_range": 0.3,
    "encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
}  # fmt: skip
SPEECH_TO_TEXT: dict[str, Any] = {
    "vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_target_positions": 24,
    "init_std": 0.3, "conv_channels": 20, "input_feat_per_channel": 24,
}  # fmt: skip
UNTIED = {"scale_embedding": False, "tie_word_embeddings": False, "conv_kernel_sizes": [3, 5]}
HOP, NEW = 160, 10


def save_speech(folder: Path, kind: str, sizes: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    return save_varied(folder, getattr(transformers, f"{kind}ForConditionalGeneration")(config))


def assert_comes_and_goes(xformc: CommandLine, folder: Path, preprocessor: Any) -> None:
    """Import the model in `folder`/model, export it, and build an engine; the export has the origin's tensors."""
    preprocessor.save_pretrained(folder / "model")
    for command in (
        ("import", folder / "model", "-o", folder / "run", "--replay"),
        ("export", "hf", folder / "run", "-o", folder / "back", "--replay"),
        ("build", folder / "run", "-o", folder / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    before, after = (load_file(folder / name / "model.safetensors") for name in ("model", "back"))
    assert before.keys() == after.keys() and all(np.array_equal(one, after[name]) for name, one in before.items())
    assert preprocessor.from_pretrained(folder / "back").to_dict().items() >= said(preprocessor).items()


def said(preprocessor: Any) -> dict[str, Any]:
    names = ("sampling_rate", "do_normalize", "num_mel_bins", "normalize_means", "mean", "std", "max_length")
    return {name: value for name, value in preprocessor.to_dict().items() if name in names}


def assert_writes_as(engine: Path, origin: Any, sounds: list[Samples], hop: int, given: Callable[..., Any]) -> None:
    """Compare the texts of sounds of several lengths, in one batch, with those of the origin, greedy and by a beam."""
    lengths = [len(sound) // hop for sound in sounds]
    wave = np.zeros((len(sounds), max(lengths), hop), np.float32)
    for row, sound in zip(wave, sounds, strict=True):
        row.ravel()[: len(sound)] = sound
    batch, seen = {"wave": wave, "wave_lengths": np.array(lengths)}, set[int]()
    for beams in (1, 3):
        options: Any = {
            "beam_size": beams,
            "max_length_factor": 0.0,
            "max_length_offset": NEW,
            "no_repeat_ngram_size": 1,
        }
        found = load(engine, threads=1).transcribe(batch, **options)
        for sound, ours in zip(sounds, found, strict=True):
            searched = {"max_new_tokens": NEW, "num_beams": beams, "do_sample": False, "no_repeat_ngram_size": 1}
            wanted = origin.generate(given(sound), **searched)[0, 1:].tolist()
            assert list(ours[0].tokens) == wanted[: wanted.index(2) + 1 if 2 in wanted else None]
            seen.update(wanted)
    assert len(seen) > 2


@pytest.mark.parametrize("more", [{}, {"attention_bias": True, "partial_rotary_factor": 0.5}], ids=["plain", "biases"])
@pytest.mark.filterwarnings("ignore")
def test_moonshine_writes_what_its_origin_writes(xformc: CommandLine, tmp_path: Path, more: dict[str, Any]) -> None:
    origin = save_speech(tmp_path / "model", "Moonshine", {**MOONSHINE, **more})
    assert_comes_and_goes(xformc, tmp_path, transformers.Wav2Vec2FeatureExtractor(do_normalize=False))
    draw = np.random.default_rng(0)
    sounds = [draw.normal(0, 0.3, length).astype(np.float32) for length in (900, 4000, 8123)]
    assert_writes_as(tmp_path / "engine", origin, sounds, 1, lambda sound: torch.tensor(sound)[None])


@pytest.mark.parametrize("more", [{}, UNTIED], ids=["tied", "untied"])
@pytest.mark.filterwarnings("ignore")
def test_speech_to_text_writes_what_its_origin_writes(
    xformc: CommandLine, tmp_path: Path, more: dict[str, Any]
) -> None:
    origin = save_speech(tmp_path / "model", "Speech2Text", {**SPEECH_TO_TEXT, **more})
    reader = transformers.Speech2TextFeatureExtractor(feature_size=24, num_mel_bins=24)
    assert_comes_and_goes(xformc, tmp_path, reader)

    def banks(sound: Samples) -> Any:
        return reader(sound, sampling_rate=16000, return_tensors="pt").input_features

    draw = np.random.default_rng(0)
    sounds = [draw.normal(0, 0.1, hops * HOP).astype(np.float32) for hops in (5, 40, 77)]
    assert_writes_as(tmp_path / "engine", origin, sounds, HOP, banks)


AST: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "patch_size": 8,
    "max_length": 40, "num_mel_bins": 24, "frequency_stride": 5, "time_stride": 6, "initializer_range": 0.3,
    "id2label": {0: "rain", 1: "wind", 2: "a dog"},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_a_spectrogram_transformer_labels_as_its_origin(xformc: CommandLine, tmp_path: Path) -> None:
    """Sounds that are shorter than the frames of the model, as long, and longer."""
    torch.manual_seed(0)
    origin = save_varied(tmp_path / "model", transformers.ASTForAudioClassification(transformers.ASTConfig(**AST)))
    reader = transformers.ASTFeatureExtractor(num_mel_bins=24, max_length=40, mean=-3.5, std=4.0)
    assert_comes_and_goes(xformc, tmp_path, reader)
    draw, engine = np.random.default_rng(0), load(tmp_path / "engine", threads=1)
    for hops in (20, 42, 60):
        sound = draw.normal(0, 0.1, hops * HOP).astype(np.float32)
        found = engine.predict({"wave": sound.reshape(1, -1, HOP), "wave_lengths": np.array([hops])})[0]
        given = reader(sound, sampling_rate=16000, return_tensors="pt").input_values
        with torch.no_grad():
            wanted = origin(given).logits.softmax(-1)[0]
        np.testing.assert_allclose(found.probabilities[0], wanted.numpy(), rtol=0, atol=1e-5)


def test_a_spectrogram_that_is_not_normalized_is_read_as_it_is(tmp_path: Path) -> None:
    content = {"feature_extractor_type": "ASTFeatureExtractor", "do_normalize": False, "num_mel_bins": 24}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    assert read_sounds(tmp_path, "") == {"sound.bands": 24, "sound.mean": 0.0, "sound.deviation": 0.5}


@pytest.mark.parametrize(("family", "change", "extractor", "message"), [
    ("moonshine", {"decoder_num_key_value_heads": 1}, {}, "1 differs from encoder_num_attention_heads"),
    ("speech_to_text", {"num_conv_layers": 3}, {}, "num_conv_layers: 3 must be '2'"),
    ("speech_to_text", {}, {"normalize_vars": False}, "filter banks must be normalized (do_ceptral_normalize"),
    ("speech_to_text", {}, {"sampling_rate": 8000}, "filter banks must be of 16,000 samples a second"),
    ("speech_to_text", {}, {"num_mel_bins": 40}, "sound.bands: 40 differs from input_feat_per_channel"),
])  # fmt: skip
def test_speech_that_is_not_imported(
    xformc: CommandLine, tmp_path: Path, family: str, change: dict[str, Any], extractor: dict[str, Any], message: str
) -> None:
    write_foreign(tmp_path / "model", FAMILIES[family])
    write_config(tmp_path / "model", {**FAMILIES[family], **change})
    content = {"feature_extractor_type": "Speech2TextFeatureExtractor", "num_mel_bins": 8, **extractor}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(content if extractor else {}))
    assert message in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
