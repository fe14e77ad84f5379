"""Small random models of transformers that write texts of images give the same texts after an import, and come back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.numpy import load_file, save_file

from tests.imports.foreign import FAMILIES, write_config, write_foreign
from tests.imports.test_images import SIZES, save_varied
from xformc.compiler.spec import load_spec
from xformc.runtime.engine import load
from xformc.runtime.searching.search import search

transformers: Any = pytest.importorskip("transformers")

WORDS: dict[str, Any] = {"vocab_size": 60, "max_position_embeddings": 32, "initializer_range": 0.3}
TROCR = {
    **WORDS,
    "init_std": 0.3,
    "d_model": 24,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
}
GPT2 = {**WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 59, "eos_token_id": 59}
BERT = {**WORDS, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
PLAIN = {"scale_embedding": True, "layernorm_embedding": False, "use_learned_position_embeddings": False}
MODELS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "trocr base": ("ViT", {"qkv_bias": False}, "TrOCR", {**TROCR, "cross_attention_hidden_size": 16}),
    "trocr small": ("DeiT", {}, "TrOCR", {**TROCR, "scale_embedding": True, "activation_function": "relu"}),
    "gpt2": ("ViT", {}, "GPT2", GPT2),
    "gpt2 of padding": ("DeiT", {"hidden_act": "gelu_new"}, "GPT2", {**GPT2, "pad_token_id": 58}),
    "bert": ("ViT", {}, "Bert", {**BERT, "bos_token_id": 1, "hidden_act": "gelu_new"}),
    "roberta": ("DeiT", {}, "Roberta", BERT),
}  # fmt: skip
NEW = 10


def save_captioner(folder: Path, sight: str, seen: dict[str, Any], words: str, said: dict[str, Any]) -> Any:
    """A random model whose texts end: with the token that it writes fourth of the first image."""
    torch.manual_seed(0)
    encoder = getattr(transformers, f"{sight}Config")(**{**SIZES, **seen})
    decoder = getattr(transformers, f"{words}Config")(**said)
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = save_varied(folder, transformers.VisionEncoderDecoderModel(both))
    model.generation_config.eos_token_id = written(model, 1)[0][3]
    model.save_pretrained(folder)
    return model


def images() -> torch.Tensor:
    return torch.rand((4, 12, 12, 3), generator=torch.Generator().manual_seed(1))


def written(model: Any, beams: int) -> list[list[int]]:
    """What transformers writes of the images, up to the end of each text."""
    options = {"max_new_tokens": NEW, "num_beams": beams, "do_sample": False}
    found = model.generate(pixel_values=images().permute(0, 3, 1, 2), **options)[:, 1:].tolist()
    end = model.generation_config.eos_token_id
    return [one[: one.index(end) + 1] if end in one else one for one in found]


def assert_writes_as(xformc: CommandLine, run: Path, model: Any) -> None:
    """Build an engine of the run, and compare its texts with those of the origin, greedy ones and those of a beam."""
    engine_folder = run.with_name("engine")
    result = xformc("build", run, "-o", engine_folder, "--target", "portable")
    assert result.code == 0, result.err
    engine = load(engine_folder, threads=1)
    for beams in (1, 3):
        options = replace(engine.manifest.search, beam_size=beams, max_length_factor=0.0, max_length_offset=NEW)
        found = search(engine.session, {"image": images().numpy()}, options).texts()
        wanted = written(model, beams)
        assert [list(one[0]) for one in found] == wanted
        assert beams > 1 or len(wanted[0]) <= 4 < NEW


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_texts_of_images_come_and_go(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    folder, run, back = tmp_path / "model", tmp_path / "run", tmp_path / "back"
    origin = save_captioner(folder, *MODELS[name])
    for command in (("import", folder, "-o", run, "--replay"), ("export", "hf", run, "-o", back, "--replay")):
        result = xformc(*command)
        assert result.code == 0, result.err
        assert "on 4 random images and " in result.out
    before, after = (load_file(path / "model.safetensors") for path in (folder, back))
    assert {
        key for key in before if "pooler" not in key
    } == after.keys() or name == "roberta"  # which BERT can say, too
    assert_writes_as(xformc, run, origin)


@pytest.mark.filterwarnings("ignore")
def test_sinusoids_of_trocr_write_as_its_origin(xformc: CommandLine, tmp_path: Path) -> None:
    origin = save_captioner(
        tmp_path / "model", "ViT", {}, "TrOCR", {**TROCR, **PLAIN}
    )  # which transformers 5 cannot load
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    assert_writes_as(xformc, tmp_path / "run", origin)


@pytest.mark.filterwarnings("ignore")
def test_a_head_of_other_numbers_is_not_tied(xformc: CommandLine, tmp_path: Path) -> None:
    write_foreign(tmp_path / "model", FAMILIES["vision-encoder-decoder"])
    arrays = load_file(tmp_path / "model" / "model.safetensors")
    embedding = arrays["decoder.model.decoder.embed_tokens.weight"]
    for head, tied in ((embedding, True), (embedding[::-1].copy(), False)):
        save_file({**arrays, "decoder.output_projection.weight": head}, tmp_path / "model" / "model.safetensors")
        assert xformc("import", tmp_path / "model", "-o", tmp_path / f"run{tied}").code == 0
        weights = load_file(tmp_path / f"run{tied}" / "weights.safetensors")
        assert np.array_equal(weights.get("logits/weight", embedding), head)


def test_what_a_part_says_of_searches_is_read_over(xformc: CommandLine, tmp_path: Path) -> None:
    config: Any = FAMILIES["vision-encoder-decoder"]
    write_foreign(tmp_path / "model", config)
    said = {"num_beam_groups": 1, "typical_p": 1.0, "use_bfloat16": False, "num_beams": 5}
    decoder = {**config["decoder"], **said}
    write_config(tmp_path / "model", {**config, "decoder": decoder, "num_beams": 4, "max_length": 9})
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    decode = load_spec(tmp_path / "run" / "spec.yaml").decode
    assert (decode.beam_size, decode.max_length.offset) == (4, 8)


@pytest.mark.parametrize(("settings", "message"), [
    ({"encoder": {"model_type": "swin"}}, "encoder.model_type: swin must be 'vit' or 'deit'"),
    ({"decoder": {"model_type": "mbart"}}, "decoder.model_type: mbart must be 'trocr', 'gpt2', 'bert' or 'roberta'"),
    ({"decoder": {"add_cross_attention": False}}, "decoder.add_cross_attention: false must be 'true'"),
])  # fmt: skip
def test_texts_of_images_that_are_not_imported(
    xformc: CommandLine, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    config: Any = FAMILIES["vision-encoder-decoder"]
    changed = {key: {**config[key], **one} if isinstance(one, dict) else one for key, one in settings.items()}
    write_config(tmp_path / "model", {**config, **changed})
    assert message in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
