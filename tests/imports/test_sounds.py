"""Small random speech models of transformers give the same logits and texts after an import, and after an export."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.numpy import load_file

from tests.imports.foreign import WAV2VEC2 as WAV2VEC2_CONFIG
from tests.imports.foreign import write_foreign
from xformc.imports.examples import features
from xformc.runtime.engine import load

transformers: Any = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

WHISPER = {
    "vocab_size": 60,
    "num_mel_bins": 8,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_source_positions": 20,
    "max_target_positions": 24,
    "init_std": 0.3,
    "pad_token_id": 50,
    "bos_token_id": 50,
    "eos_token_id": 50,
    "decoder_start_token_id": 51,
    "suppress_tokens": [51, 7],
    "begin_suppress_tokens": [50, *range(0, 50, 2)],
}
FRAMES, HOP = 40, 160


def save_whisper(folder: Path) -> Any:
    """A random model whose biases, gains and positions are random, too, with a tokenizer."""
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**WHISPER))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "positions" in name:
                parameter.add_(torch.randn_like(parameter) * (3.0 if "decoder.embed_positions" in name else 0.3))
    model.save_pretrained(folder)
    tokens = {f"w{index}": index for index in range(60)}
    content = {"version": "1.0", "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "w0"}}
    added = [{"id": index, "content": f"w{index}", "special": True} for index in (50, 51)]
    rest = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    whole = {
        **content,
        "added_tokens": [{**one, **rest} for one in added],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return model.eval()


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
def test_whisper_writes_what_its_origin_writes(xformc: CommandLine, tmp_path: Path) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    origin = save_whisper(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "forced_decoder_ids": [[1, 9], [2, 4]]}))
    for command in (
        ("import", folder, "-o", run, "--replay"),
        ("export", "hf", run, "-o", back, "--replay"),
        ("build", run, "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    before, after = (load_file(path / "model.safetensors") for path in (folder, back))
    assert before.keys() == after.keys() and all(np.array_equal(one, after[name]) for name, one in before.items())
    engine, draw = load(tmp_path / "engine", threads=1), np.random.default_rng(0)
    lengths = (3, 25, FRAMES)
    sounds = [draw.normal(0, 0.1, length * HOP).astype(np.float32) for length in lengths]
    given = features(8, FRAMES * HOP, 16000, HOP, 400)(sounds, sampling_rate=16000, return_tensors="pt").input_features
    seen, suppressed = set[int](), 0
    for beams, given_prefix, prefix in ((1, [], [9, 4]), (3, [], [9, 4]), (3, [5], [5])):
        begun = torch.tensor([[51, *prefix]] * len(sounds))
        more = {"num_beams": beams, "do_sample": False, "no_repeat_ngram_size": 1}
        wanted = origin.generate(given, decoder_input_ids=begun, max_new_tokens=12, **more).tolist()
        if beams == 1:
            free = origin.generate(
                given, decoder_input_ids=begun, max_new_tokens=12, begin_suppress_tokens=[51], **more
            )
            suppressed += sum(one[:1] != other[:1] for one, other in zip(wanted, free.tolist(), strict=True))
        for index, sound in enumerate(sounds):
            found = engine.transcribe(
                {"wave": sound.reshape(1, -1, HOP), "wave_lengths": np.array([len(sound) // HOP])},
                beam_size=beams,
                no_repeat_ngram_size=1,
                prefixes=[given_prefix],
                max_length_offset=12 + len(prefix),
                max_length_factor=0.0,
            )
            tokens, own = list(found[0][0].tokens)[len(prefix) :], wanted[index]
            assert tokens == own[: own.index(50) + 1 if 50 in own else None], (beams, prefix, index)
            seen.update(tokens)
    assert len(seen) > 8 and suppressed > 0


WAV2VEC2 = {
    "vocab_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "conv_dim": [8] * 7,
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 2,
    "initializer_range": 0.3,
}
STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True, "num_conv_pos_embeddings": 5}
LETTERS = {
    "a": 0,
    "b": 1,
    "c": 2,
    "|": 3,
    "d": 4,
    "[UNK]": 5,
    "[PAD]": 6,
    "e": 7,
    "<s>": 8,
    "</s>": 9,
    "'": 10,
    "f": 11,
}


def save_wav2vec2(folder: Path, **more: Any) -> Any:
    """A random model whose biases and gains are random, too, with a vocabulary whose blank is not the first token."""
    torch.manual_seed(0)
    ids = {"pad_token_id": 6, "bos_token_id": 8, "eos_token_id": 9}
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**{**WAV2VEC2, **ids, **more}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.lm_head.bias.zero_()
    model.save_pretrained(folder)
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "vocab.json").write_text(json.dumps(LETTERS))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Wav2Vec2CTCTokenizer", **names}))
    transformers.Wav2Vec2FeatureExtractor(do_normalize=not more).save_pretrained(folder)
    return model.eval()


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more", [{}, STABLE], ids=["base", "stable"])
def test_wav2vec2_writes_what_its_origin_writes(xformc: CommandLine, tmp_path: Path, more: dict[str, Any]) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    origin = save_wav2vec2(folder, **more)
    for command in (
        ("import", folder, "-o", run, "--replay"),
        ("export", "hf", run, "-o", back, "--replay"),
        ("build", run, "-o", tmp_path / "engine", "--target", "native" if more else "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    again = transformers.Wav2Vec2ForCTC.from_pretrained(back).eval()
    reader = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    spellers = [transformers.Wav2Vec2CTCTokenizer.from_pretrained(path) for path in (folder, back)]
    engine, draw, texts = load(tmp_path / "engine", threads=1), np.random.default_rng(0), set()
    lengths = (1600, 4321, 7999)
    turns = [np.repeat(draw.exponential(1.0, 40), 200)[:length] for length in lengths]  # tones of 200 samples each
    sounds = [(np.sin(np.cumsum(turn)) * turn).astype(np.float32) for turn in turns]
    batch = {"wave": np.zeros((3, max(lengths), 1), np.float32), "wave_lengths": np.array(lengths)}
    for row, sound in enumerate(sounds):
        batch["wave"][row, : len(sound), 0] = sound
    for sound, one in zip(sounds, engine.predict(batch), strict=True):
        given = reader(sound, sampling_rate=16000, return_tensors="pt").input_values
        with torch.no_grad():
            wanted = [
                re.sub("<s>|</s>|\\[UNK\\]", "", speller.decode(model(given).logits.argmax(-1)[0])).split()
                for model, speller in zip((origin, again), spellers, strict=True)
            ]
        found = one.results["text"].text
        assert found is not None and [found.split()] * 2 == wanted
        texts.add(found)
    assert len(texts) == 3 and len(set("".join(texts))) > 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", {"a": 0, "<pad>": 1, "<s>": 2, "<unk>": 3}, "vocab.json: lacks </s> (eos_token)"),
        ("vocab.json", {**LETTERS, "g": 1}, "must map tokens to ids below 65,536, each to one of its own"),
        ("vocab.json", {**LETTERS, "g": 1 << 40}, "must map tokens to ids below 65,536"),
        ("vocab.json", {"en": {"a": 0}}, "must map tokens to ids"),
        ("tokenizer_config.json", {"pad_token": "<s>", "unk_token": "a"}, "has one token as several of pad_token"),
        (
            "preprocessor_config.json",
            {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 8000},
            "samples must be 16,000 numbers a second",
        ),
        ("config.json", {**WAV2VEC2_CONFIG, "conv_dim": [6] * 8}, "conv_dim.7: 6 is not in the table of wav2vec2"),
        ("config.json", {**WAV2VEC2_CONFIG, "add_adapter": True}, "add_adapter: true must be 'false'"),
    ],
)
def test_what_wav2vec2_cannot_be_is_one_error(
    xformc: CommandLine, tmp_path: Path, file: str, content: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "model"
    write_foreign(folder, WAV2VEC2_CONFIG)
    (folder / "vocab.json").write_text(json.dumps({**LETTERS, "<pad>": 12, "<unk>": 13}))
    (folder / file).write_text(json.dumps(content))
    assert message in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
