"""Small random speech models of transformers give the same logits and texts after an import, and after an export."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.numpy import load_file

from tests.imports.foreign import WAV2VEC2 as WAV2VEC2_CONFIG
from tests.imports.foreign import write_foreign
from tests.runtime.kernel_session import kernel_library
from tests.sounds import write_wav
from xformc.errors import UserError
from xformc.format.speech import Speech
from xformc.imports.banned import forced
from xformc.imports.examples import features
from xformc.imports.sounds import read_sounds
from xformc.runtime.engine import Engine, load

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
SPOKEN: dict[str, Any] = {
    "is_multilingual": True,
    "forced_decoder_ids": [[1, None], [2, 40]],
    "lang_to_id": {"<|en|>": 9, "<|de|>": 13, "<|fr|>": 17, "<|nl|>": 31},
    "task_to_id": {"transcribe": 40, "translate": 41},
    "no_timestamps_token_id": 45,
}
FRAMES, HOP = 40, 160


def save_whisper(folder: Path, **changed: Any) -> Any:
    """A random model whose biases, gains and positions are random, too, with a tokenizer."""
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**{**WHISPER, **changed}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "positions" in name:
                parameter.add_(torch.randn_like(parameter) * (3.0 if "decoder.embed_positions" in name else 0.3))
    model.save_pretrained(folder)
    tokens = {f"w{index}": index for index in range(changed.get("vocab_size", 60))}
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
    said = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**said, **SPOKEN}))
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
    for beams, prefix in ((1, [9, 4]), (3, [9, 4]), (3, [5])):
        begun = torch.tensor([[51, *prefix]] * len(sounds))
        more = {"num_beams": beams, "do_sample": False, "no_repeat_ngram_size": 1}
        wanted = origin.generate(given, decoder_input_ids=begun, max_new_tokens=12, **more).tolist()
        free = origin.generate(given, decoder_input_ids=begun, max_new_tokens=12, begin_suppress_tokens=[51], **more)
        suppressed += sum(one[:1] != other[:1] for one, other in zip(wanted, free.tolist(), strict=True))
        for index, sound in enumerate(sounds):
            found = engine.transcribe(
                {"wave": sound.reshape(1, -1, HOP), "wave_lengths": np.array([len(sound) // HOP])},
                beam_size=beams,
                no_repeat_ngram_size=1,
                prefixes=[prefix],
                max_length_offset=12 + len(prefix),
                max_length_factor=0.0,
            )
            tokens, own = list(found[0][0].tokens)[len(prefix) :], wanted[index]
            assert tokens == own[: own.index(50) + 1 if 50 in own else None], (beams, prefix, index)
            seen.update(tokens)
    assert len(seen) > 8 and suppressed > 0
    finds_the_language(origin, engine)
    refuses_other_languages(engine)
    path = write_wav(tmp_path / "long.wav", draw.normal(0, 0.1, 7040).astype(np.float32), rate=16000)
    [[wanted]] = engine.transcribe([path], part=0.2)
    printed = xformc("transcribe", tmp_path / "engine", path, "--part", "0.2", "--threads", "1", "--json").out
    [found] = json.loads(printed)["hypotheses"]
    assert (found["text"], found["language"]) == (wanted.text, wanted.language)
    assert wanted.language in ("en", "de", "fr", "nl")
    parts = [{"start": 0.2 * place, "text": one.text} for place, one in enumerate(wanted.parts)]
    assert [{**one, "end": 0} for one in parts] == [
        {**one, "start": pytest.approx(one["start"]), "end": 0} for one in found["parts"]
    ]
    asked = xformc("transcribe", tmp_path / "engine", path, "--language", "fr", "--task", "translate", "--threads", "1")
    assert asked.out == engine.transcribe([path], prefixes=[[17, 41, 45]])[0][0].text + "\n"


def finds_the_language(origin: Any, engine: Engine) -> None:
    """The language is the one that transformers finds in the first part of each sound, and each part is one there."""
    draw, languages = np.random.default_rng(1), {token: name[2:-2] for name, token in SPOKEN["lang_to_id"].items()}
    origin.generation_config.lang_to_id = SPOKEN["lang_to_id"]
    options: Any = {"beam_size": 1, "max_length_offset": 15, "max_length_factor": 0.0, "no_repeat_ngram_size": 1}
    for length in (20, FRAMES + 7, 2 * FRAMES + 30, FRAMES):
        sound = draw.normal(0, 10 ** draw.uniform(-3, 0), length * HOP).astype(np.float32)
        parts = [sound[start : start + FRAMES * HOP] for start in range(0, len(sound), FRAMES * HOP)]
        given = features(8, FRAMES * HOP, 16000, HOP, 400)(parts, sampling_rate=16000, return_tensors="pt")
        [language, *_] = origin.detect_language(given.input_features[:1]).tolist()
        for task, asked in ((None, None), ("translate", "fr")):
            start = [SPOKEN["lang_to_id"]["<|fr|>"] if asked else language, 41 if task else 40, 45]
            begun = torch.tensor([[51, *start]] * len(parts))
            wanted = origin.generate(
                given.input_features, decoder_input_ids=begun, max_new_tokens=12, no_repeat_ngram_size=1
            ).tolist()
            wave = {"wave": sound.reshape(1, -1, HOP), "wave_lengths": np.array([length])}
            [[best]] = engine.transcribe(wave, language=asked, task=task, **options)
            tokens = [[*start, *(own[: own.index(50) + 1] if 50 in own else own)] for own in wanted]
            assert list(best.tokens) == [token for own in tokens for token in own]
            assert best.language == (None if asked else languages[language])
            assert [(part.start, part.end) for part in best.parts] == [
                (pytest.approx(0.4 * place), pytest.approx(min(0.4 * place + 0.4, length / 100)))
                for place in range(len(parts) if len(parts) > 1 else 0)
            ]
            assert len(parts) == 1 or best.text == " ".join(one.text for one in best.parts if one.text)
        [[shorter]] = engine.transcribe(wave, language="fr", part=0.2, **options)
        assert len(shorter.parts) == (-(-length // 20) if length > 20 else 0)
    left, speech, order = {**SPOKEN["lang_to_id"]}, engine.manifest.speech, list[str | None]()
    assert speech is not None
    while len(left) > 1:
        origin.generation_config.lang_to_id = left
        [language, *_] = origin.detect_language(given.input_features[:1]).tolist()
        fewer = replace(speech, languages={languages[token]: token for token in left.values()})
        [[best]] = replace(engine, manifest=replace(engine.manifest, speech=fewer)).transcribe(wave, **options)
        assert best.language == languages[language]
        del left[f"<|{best.language}|>"]
        order.append(best.language)
    assert order != ["en", "de", "fr"]


def refuses_other_languages(engine: Engine) -> None:
    wave = {"wave": np.zeros((1, 50, HOP), np.float32), "wave_lengths": np.array([50])}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"language": "xx"}, "language must be auto or one of en, de, fr, nl, not 'xx'"),
        ({"task": "sing"}, "task must be transcribe or translate, not 'sing'"),
        ({"part": 1.0}, "part must be a number from 0.01 to 0.4, not 1.0"),
        ({"language": "de", "prefixes": [[9]]}, "a prefix excludes language and task"),
        ({"language": "de", "beam_size": 2, "n_best": 2}, "n_best must be 1 for a sound of 2 parts of 0.4 seconds"),
    ]
    for options, message in wrong:
        with pytest.raises(UserError, match=re.escape(message)):
            engine.transcribe(wave, **options)
    english = replace(engine.manifest, speech=Speech(0.4), prefix=(45,))
    with pytest.raises(UserError, match="knows one language and one task"):
        replace(engine, manifest=english).transcribe(wave, language="de")
    with pytest.raises(UserError, match=r"language, part: .* is no model of speech with a longest sound"):
        replace(engine, manifest=replace(english, speech=None)).transcribe(wave, language="de", part=0.1)
    with pytest.raises(UserError, match="knows no timestamps"):
        engine.transcribe(wave, language="de", timestamps=True)
    with pytest.raises(UserError, match="timestamps exclude token_scores"):
        engine.transcribe(wave, language="de", timestamps=True, token_scores=True)
    with pytest.raises(UserError, match="has languages, tasks or times that are no tokens"):
        replace(engine, manifest=replace(english, speech=Speech(0.4, {"en": 60}))).transcribe(wave)
    with pytest.raises(UserError, match="has a default prefix, so it finds no language"):
        replace(engine, manifest=replace(engine.manifest, prefix=(45,))).transcribe(wave, language="auto")


def test_places_of_forced_tokens_are_a_prefix_if_all_are_there() -> None:
    pairs: dict[str, Any] = {f"forced_decoder_ids.{index}.0": index + 1 for index in range(2)}
    tokens: dict[str, Any] = {"forced_decoder_ids.0.1": 9, "forced_decoder_ids.1.1": 4}
    assert forced({**pairs, **tokens}) == {"prefix": [9, 4]}
    assert forced({**pairs, **tokens, "forced_decoder_ids.0.1": None}) == {}


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


def save_wav2vec2(folder: Path, kind: str = "Wav2Vec2", **more: Any) -> Any:
    """A random model whose biases and gains are random, too, with a vocabulary whose blank is not the first token."""
    torch.manual_seed(0)
    ids = {"pad_token_id": 6, "bos_token_id": 8, "eos_token_id": 9}
    config = getattr(transformers, f"{kind}Config")(**{**WAV2VEC2, **ids, **more})
    model = getattr(transformers, f"{kind}ForCTC")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or name.endswith("_const"):
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
    if more:
        kernel_library()
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
        assert found is not None and found == found.strip() and [found.split()] * 2 == wanted
        texts.add(found)
    assert len(texts) == 3 and len(set("".join(texts))) > 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Hubert", {}),
        ("WavLM", {"num_hidden_layers": 2}),
        ("WavLM", {**STABLE, "num_buckets": 20}),
        ("UniSpeech", {}),
        ("UniSpeech", STABLE),
        ("Data2VecAudio", {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5, "conv_bias": True}),
    ],
)
def test_relatives_of_wav2vec2_come_and_go(
    xformc: CommandLine, tmp_path: Path, kind: str, more: dict[str, Any]
) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    save_wav2vec2(folder, kind, **more)
    if kind == "Hubert":  # samples are normalized where no file says so
        (folder / "preprocessor_config.json").unlink()
    for command in (("import", folder, "-o", run, "--replay"), ("export", "hf", run, "-o", back, "--replay")):
        result = xformc(*command)
        assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("file", "content", "normal"),
    [
        ("preprocessor_config.json", {"do_normalize": False, "sampling_rate": 16000}, False),
        ("preprocessor_config.json", {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}, True),
        ("processor_config.json", {"feature_extractor": {"do_normalize": False}}, False),
        ("processor_config.json", {"tokenizer": {}}, None),
    ],
)
def test_samples_are_normalized_as_the_extractor_says(
    tmp_path: Path, file: str, content: dict[str, Any], normal: bool | None
) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    assert read_sounds(tmp_path, "wav2vec2") == ({} if normal is None else {"sound.normalize": normal})
    assert "feature_extractor_type" in content or read_sounds(tmp_path, "vit") == {}


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
