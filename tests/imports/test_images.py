"""Small random image models of transformers give the same labels after an import, and after an export."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.numpy import load_file, save_file

from tests.imports.foreign import FAMILIES, LLAMA, write_config, write_foreign
from tests.imports.test_tokenizers import train_piece_model, write_byte_pairs
from xformc.compiler.spec import load_spec
from xformc.imports.images import image_numbers, read_images
from xformc.runtime.engine import load
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import search

transformers: Any = pytest.importorskip("transformers")
tokenizers: Any = pytest.importorskip("tokenizers")
transformers.utils.logging.disable_progress_bar()

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 12,
    "patch_size": 4,
    "initializer_range": 0.3,
}
LABELS = {0: "cat", 1: "dog", 2: "a cat and a dog"}
MODELS = ["DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"]
NARROW = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
ENCODERS: list[tuple[str, str, dict[str, Any]]] = [
    ("Dinov2Model", "Dinov2Config", {**NARROW, "use_swiglu_ffn": True}),
    ("Dinov2ForImageClassification", "Dinov2Config", NARROW),
    ("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig", {**NARROW, "num_register_tokens": 3}),
    ("CLIPVisionModelWithProjection", "CLIPVisionConfig", {**SIZES, "projection_dim": 10}),
    ("SiglipVisionModel", "SiglipVisionConfig", SIZES),
    ("BeitForImageClassification", "BeitConfig", {**SIZES, "use_relative_position_bias": True}),
    (
        "BeitForImageClassification",
        "BeitConfig",
        {
            **SIZES,
            "use_shared_relative_position_bias": True,
            "use_absolute_position_embeddings": True,
            "use_mean_pooling": False,
        },
    ),
    ("Data2VecVisionForImageClassification", "Data2VecVisionConfig", {**SIZES, "layer_scale_init_value": 0.0}),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"image_std": [0.2, 0, 0.25]}, "image_std must be a number for each channel, and no deviation is 0"),
    ({"image_mean": "x"}, "image_mean must be a number for each channel"),
    ({"rescale_factor": 1.0}, "pixels must be divided by 255"),
    ({"rescale_factor": 1.0, "do_normalize": False}, "pixels must be divided by 255"),
    ({"do_rescale": False, "do_normalize": False}, "pixels must be divided by 255"),
]


def save(folder: Path, kind: str, config: str = "", sizes: dict[str, Any] | None = None) -> Any:
    """A random model whose tokens, positions, biases and gains are random, too."""
    torch.manual_seed(0)
    named = getattr(transformers, config or f"{kind[:4].rstrip('F')}Config")
    return save_varied(folder, getattr(transformers, kind)(named(**(sizes or SIZES), id2label=LABELS)))


def save_varied(folder: Path, model: Any) -> Any:
    """The model, with biases and gains that are random, too."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 or parameter.shape[0] == 1 or not parameter.any():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return model.eval()


def write_preprocessor(folder: Path, **more: object) -> None:
    content = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.25], "do_normalize": True, **more}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_an_image_model_comes_and_goes(xformc: CommandLine, tmp_path: Path, kind: str) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    save(folder, kind)
    write_preprocessor(folder)
    for command in (("import", folder, "-o", run, "--replay"), ("export", "hf", run, "-o", back, "--replay")):
        result = xformc(*command)
        assert result.code == 0, result.err
        assert "on 4 random images" in result.out and "tokenizer" not in result.out
    before, after = (load_file(path / "model.safetensors") for path in (folder, back))
    assert before.keys() == after.keys()
    assert all(np.array_equal(array, after[name]) for name, array in before.items())
    config, again = (json.loads((path / "config.json").read_text()) for path in (folder, back))
    assert {key: config[key] for key in ("architectures", "id2label")} == {
        key: again[key] for key in ("architectures", "id2label")
    }
    said = json.loads((back / "preprocessor_config.json").read_text())
    assert (said["image_mean"], said["image_std"]) == ([0.5, 0.4, 0.3], [0.2, 0.3, 0.25])


@pytest.mark.parametrize(("kind", "config", "sizes"), ENCODERS)
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_of_images_comes_and_goes(
    xformc: CommandLine, tmp_path: Path, kind: str, config: str, sizes: dict[str, Any]
) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    save(folder, kind, config, sizes)
    for command in (("import", folder, "-o", run, "--replay"), ("export", "hf", run, "-o", back, "--replay")):
        result = xformc(*command)
        assert result.code == 0, result.err
        assert "on 4 random images" in result.out
    before, after = (load_file(path / "model.safetensors") for path in (folder, back))
    same = {name: found for name in after for found in before if name.endswith(found)}
    assert len(same) == len(after) and len(before) - len(after) <= 1  # but for the token of masked patches
    assert all(np.array_equal(after[name], before[found]) for name, found in same.items())


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
def test_an_engine_labels_a_file_as_the_origin(xformc: CommandLine, tmp_path: Path) -> None:
    pillow: Any = pytest.importorskip("PIL.Image")
    folder = tmp_path / "model"
    origin = save(folder, "ViTForImageClassification")
    write_preprocessor(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "one.png")
    for command in (
        ("import", folder, "-o", tmp_path / "run", "--replay"),
        ("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    found = load(tmp_path / "engine", threads=1).predict([str(tmp_path / "one.png")])[0]
    normal = (pixels.astype(np.float32) / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.25]
    with torch.no_grad():
        wanted = origin(torch.tensor(normal, dtype=torch.float32).permute(2, 0, 1)[None]).logits.softmax(-1)[0]
    np.testing.assert_allclose(found.probabilities[0], wanted.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("content", "numbers"), [
    ({"image_processor_type": "ViTImageProcessor"}, [[0.5] * 3, [0.5] * 3]),
    ({"size": 8, "image_std": [0.2, 0.3, 0.4]}, [[0.5] * 3, [0.2, 0.3, 0.4]]),
    ({"image_mean": [0.1, 0.2, 0.3], "do_normalize": None}, [[], []]),
    ({"feature_size": 1, "do_normalize": True}, [[], []]),
])  # fmt: skip
def test_what_a_preprocessor_leaves_out_is_as_in_transformers(
    tmp_path: Path, content: dict[str, Any], numbers: list[list[float]]
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    values = read_images(tmp_path)
    assert [list(image_numbers(values, name)) for name in ("mean", "deviation")] == numbers


def test_a_processor_of_images_and_texts_has_the_pixels_in_a_part(tmp_path: Path) -> None:
    content = {"processor_class": "LlavaProcessor", "image_processor": {"image_mean": [0.1], "image_std": [0.2]}}
    (tmp_path / "processor_config.json").write_text(json.dumps(content))
    assert [list(image_numbers(read_images(tmp_path), name)) for name in ("mean", "deviation")] == [[0.1], [0.2]]


@pytest.mark.filterwarnings("ignore")
def test_what_a_preprocessor_asks_beyond_is_refused(xformc: CommandLine, tmp_path: Path) -> None:
    save(tmp_path / "model", "ViTForImageClassification")
    for change, message in REFUSED:
        write_preprocessor(tmp_path / "model", **change)
        assert message in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
        assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_replay_of_other_inputs_is_refused(xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "other"}')
    save_file({"w": np.zeros((2, 16), np.float32), "b": np.zeros(2, np.float32)}, tmp_path / "model/model.safetensors")
    table = tmp_path / "mine.yaml"
    table.write_text(
        "spec: {task: classification, sizes: {pixels: 16, labels: 2}, inputs: {image: {values: pixels}}, "
        "model: {label: {from: image, do: [linear: labels]}}, train: {schedule: {kind: constant, peak: 0.1}}}\n"
        "weights: {label/weight: w, label/bias: b}\n"
    )
    given = ("import", tmp_path / "model", "-o", tmp_path / "run", "--map", table)
    assert "this model reads values" in mistake(xformc(*given, "--replay"))
    assert xformc(*given).code == 0


@pytest.mark.filterwarnings("ignore")
def test_questions_about_images_are_answered_as_by_the_origin(xformc: CommandLine, tmp_path: Path) -> None:
    folder, patch = tmp_path / "model", 118
    torch.manual_seed(0)
    sight = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sight |= {"model_type": "siglip_vision_model", "image_size": 12, "patch_size": 4, "vision_use_head": False}
    words = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    words |= {
        "model_type": "gemma",
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 120,
        "initializer_range": 0.3,
    }
    ids = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "image_token_index": patch, "vocab_size": 120}
    config = transformers.PaliGemmaConfig(
        vision_config=sight, text_config=words, projection_dim=32, hidden_size=32, **ids
    )
    origin = save_varied(folder, transformers.PaliGemmaForConditionalGeneration(config))
    for command in (
        ("import", folder, "-o", tmp_path / "run", "--replay"),
        ("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    engine, random = load(tmp_path / "engine", threads=1), torch.Generator().manual_seed(1)
    options = replace(engine.manifest.search, beam_size=1, max_length_factor=0.0, max_length_offset=12)
    for length in (3, 7):
        pixels = torch.rand((2, 12, 12, 3), generator=random)
        question = torch.randint(3, 107, (2, length), generator=random)
        question[:, -1] = 108
        text = torch.cat((torch.full((2, 9), patch), question), 1)
        given = {"input_ids": text, "attention_mask": torch.ones_like(text), "token_type_ids": torch.zeros_like(text)}
        wanted = origin.generate(**given, pixel_values=pixels.permute(0, 3, 1, 2), max_new_tokens=12, do_sample=False)
        found = search(engine.session, {"image": pixels.numpy(), "question": question.numpy()}, options).texts()
        for ours, theirs in zip(found, wanted[:, text.shape[1] :].tolist(), strict=True):
            assert list(ours[0]) == theirs[: len(ours[0])]
            assert len(ours[0]) == 12 or ours[0][-1] == 1


CLIP: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    "model_type": "clip_vision_model", "image_size": 12, "patch_size": 4, "initializer_range": 0.3,
}  # fmt: skip
WORDS: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "model_type": "llama", "num_key_value_heads": 2, "vocab_size": 320, "initializer_range": 0.3,
}  # fmt: skip
PATCH, PAD = 318, 319
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
LLAVA: dict[str, dict[str, Any]] = {
    "llama": {"text_config": {**WORDS, "rope_parameters": LINEAR}},
    "qwen2": {
        "text_config": {**WORDS, "model_type": "qwen2", "tie_word_embeddings": True},
        "vision_config": {**CLIP, "hidden_act": "gelu"},
    },
    "mistral": {
        "text_config": {**WORDS, "model_type": "mistral", "sliding_window": None, "head_dim": 12},
        "vision_feature_select_strategy": "full",
        "vision_feature_layer": -1,
    },
}


def save_llava(folder: Path, **settings: Any) -> Any:
    torch.manual_seed(0)
    parts = {"vision_config": CLIP, "text_config": WORDS, "image_token_index": PATCH, "pad_token_id": PAD, **settings}
    return save_varied(folder, transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(**parts)))


def answers(origin: Any, pixels: torch.Tensor, prompts: list[list[int]]) -> list[list[int]]:
    """What the origin writes after prompts of several lengths, greedily: 12 tokens, or up to its end."""
    longest = max(map(len, prompts))
    text = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    given = {"input_ids": text, "attention_mask": (text != PAD).long(), "pixel_values": pixels.permute(0, 3, 1, 2)}
    found = origin.generate(**given, max_new_tokens=12, do_sample=False)[:, longest:].tolist()
    return [one[: one.index(2) + 1] if 2 in one else one for one in found]


@pytest.mark.parametrize("name", LLAVA)
@pytest.mark.filterwarnings("ignore")
def test_prompts_around_an_image_come_and_go(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    save_llava(tmp_path / "model", **LLAVA[name])
    for command in (
        ("import", tmp_path / "model", "-o", tmp_path / "run", "--replay"),
        ("export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--replay"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
        assert "on 4 random images with questions" in result.out


@pytest.mark.filterwarnings("ignore")
def test_prompts_of_several_lengths_around_an_image_are_answered_as_by_the_origin(
    xformc: CommandLine, tmp_path: Path
) -> None:
    origin = save_llava(tmp_path / "model")
    for command in (
        ("import", tmp_path / "model", "-o", tmp_path / "run"),
        ("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    engine, random = load(tmp_path / "engine", threads=1), np.random.default_rng(1)
    pixels = torch.tensor(random.random((4, 12, 12, 3), np.float32))
    before, questions = (
        [random.integers(3, PATCH, length).tolist() for length in lengths] for lengths in ((1, 3, 2, 5), (4, 2, 7, 3))
    )
    before[1][1] = 0  # a token like any other
    wanted = answers(origin, pixels, [[*one, *[PATCH] * 9, *two] for one, two in zip(before, questions, strict=True)])
    given = {"image": pixels.numpy(), "before": pad(before, PAD), "question": pad(questions, PAD)}
    assert [list(one[0].tokens[:12]) for one in engine.transcribe(given)] == wanted


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_around_an_image_begins_as_its_template_says(xformc: CommandLine, tmp_path: Path) -> None:
    pillow: Any = pytest.importorskip("PIL.Image")
    folder = tmp_path / "model"
    origin = save_llava(folder)
    write_preprocessor(folder)
    tokenizer = tokenizers.Tokenizer.from_file(str(write_byte_pairs(folder / "tokenizer.json")))
    tokenizer.add_special_tokens(["<s>"])
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "one.png")
    for command in (
        ("import", folder, "-o", tmp_path / "run", "--replay"),
        ("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    prompt = {"before": "USER: ", "image": str(tmp_path / "one.png"), "question": "\nein Haus? ASSISTANT:"}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(prompt) + "\n")
    options = ("--json", "--json-input", "--token-scores", "--input", tmp_path / "prompts.jsonl")
    result = xformc("transcribe", tmp_path / "engine", *options)
    assert result.code == 0, result.err
    normal = torch.tensor((pixels.astype(np.float32) / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.25], dtype=torch.float32)
    first, last = (tokenizer.encode(prompt[name], add_special_tokens=False).ids for name in ("before", "question"))
    (wanted,) = answers(origin, normal[None], [[begin, *first, *[PATCH] * 9, *last]])
    (hypothesis,) = json.loads(result.out)["hypotheses"]
    assert hypothesis["pieces"][: len(wanted)] == [tokenizer.id_to_token(one) or "" for one in wanted]


@pytest.mark.parametrize("family", ["llava", "paligemma"])
def test_what_a_generation_config_says_is_of_the_search(xformc: CommandLine, tmp_path: Path, family: str) -> None:
    write_foreign(tmp_path / "model", FAMILIES[family])
    said = {"max_new_tokens": 7, "suppress_tokens": [5], "num_beams": 3}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(said))
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    decode = load_spec(tmp_path / "run" / "spec.yaml").decode
    assert (decode.max_length.offset, [*decode.suppress_tokens], decode.beam_size) == (7, [5], 3)


@pytest.mark.parametrize(("settings", "message"), [
    ({"text_config": {**LLAMA, "model_type": "mistral"}}, "text_config.sliding_window: 4096 must be 'null'"),
    ({"vision_feature_layer": 1}, "vision_feature_layer: 1 must be '-1' or '-2'"),
    ({"vision_feature_layer": [-1]}, "vision_feature_layer.0: -1 must be 'null'"),
    ({}, "needs a tokenizer.json, whose template says how a prompt begins"),
])  # fmt: skip
def test_prompts_around_an_image_that_are_not_imported(
    xformc: CommandLine, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    write_foreign(tmp_path / "model", FAMILIES["llava"])
    write_config(tmp_path / "model", {**FAMILIES["llava"], **settings})
    train_piece_model(tmp_path / "model" / "tokenizer.model", unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    assert message in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
