"""Checkpoints of OpenNMT-py become runs that compute what OpenNMT-py 3.5.1 has computed with them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine, mistake

from tests.exports.test_hugging_face import done
from tests.imports.opennmt_files import (
    GIVEN,
    LANGUAGE_MODEL,
    RECORDED,
    ROTARY,
    SOURCE,
    TEXTS,
    VARIANTS,
    is_translation,
    write_opennmt,
)
from tests.imports.test_fairseq import logits
from tests.imports.test_tokenizers import train_piece_model
from xformc.compiler.spec import load_spec
from xformc.runtime.engine import load
from xformc.runtime.text.tokenizer import open_vocabulary


def expected(name: str) -> dict[str, Any]:
    return json.loads(RECORDED.read_text())[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_computes_the_logits_of_opennmt(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_opennmt(tmp_path / "model" / "model_step_3.pt", **VARIANTS[name])
    out = done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    assert "a run of the family opennmt, " in out
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    source, target = (torch.tensor(ids) for ids in GIVEN)
    if is_translation(name):
        assert not spec.inputs["source"].special.ends
    found = logits(tmp_path / "run", spec, *((source, target) if is_translation(name) else (target,)))
    torch.testing.assert_close(found, torch.tensor(expected(name)["logits"]), rtol=0, atol=3e-5)


@pytest.mark.processor
def test_an_import_translates_as_opennmt_does(xformc: CommandLine, tmp_path: Path) -> None:
    path = write_opennmt(tmp_path / "model.pt", **VARIANTS["halves"])
    done(xformc, "import", path, "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine = load(tmp_path / "engine", threads=1)
    texts = [" ".join(SOURCE[one] for one in text) for text in TEXTS]
    found = [list(row[0].tokens) for row in engine.translate([*texts, ""], beam_size=1)]
    assert found == [*expected("halves")["texts"], []]


@pytest.mark.processor
def test_a_language_model_writes_as_opennmt_does(xformc: CommandLine, tmp_path: Path) -> None:
    path = write_opennmt(tmp_path / "model.pt", **VARIANTS["lm"])
    done(xformc, "import", path, "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine = load(tmp_path / "engine", threads=1)
    texts = [" ".join(SOURCE[one] for one in text) for text in TEXTS]
    found = [list(one.tokens) for one in engine.generate(texts, beam_size=1, max_new_tokens=8)]
    assert found == expected("lm")["texts"]


def test_a_language_model_may_have_no_begin_token(xformc: CommandLine, tmp_path: Path) -> None:
    vocab = {"src": SOURCE, "tgt": SOURCE, "data_task": "lm", "decoder_start_token": ""}
    path = write_opennmt(tmp_path / "model.pt", **VARIANTS["lm"], vocab=vocab)
    done(xformc, "import", path, "-o", tmp_path / "run")
    assert load_spec(tmp_path / "run" / "spec.yaml").inputs["text"].special.begin is None


def test_weights_may_be_in_safetensors_and_texts_in_pieces(xformc: CommandLine, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = write_opennmt(tmp_path / "model" / "model.pt")
    content = torch.load(path, weights_only=False)
    generator = {f"generator.{name}": tensor for name, tensor in content.pop("generator").items()}
    save_file({**content.pop("model"), **generator}, path.with_suffix(".safetensors"))
    content["vocab"]["src"] = content["vocab"]["tgt"] = tokens = [*SOURCE[:4], *"▁theodg", "x"]
    content["vocab"]["tgt"] = [*tokens, "y", "z", "q"]
    torch.save(content, path)
    train_piece_model(path.parent / "sentencepiece.model", vocab_size=70)
    assert "of whose pieces have no id" in done(xformc, "import", path, "-o", tmp_path / "run")
    item = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"]
    ours = open_vocabulary(tmp_path / "run" / "source.model", item.vocabulary, item.special)
    assert ours.surround(ours.encode("the dog")) == [tokens.index(one) for one in "▁the▁dog"]


def test_codes_of_byte_pairs_cut_words(xformc: CommandLine, tmp_path: Path) -> None:
    tokens = [*SOURCE[:4], "lo@@", "low", "er", "e@@", "r", "n@@", "ew", "w@@"]
    vocab = {"src": tokens, "tgt": tokens, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    path = write_opennmt(tmp_path / "model" / "model.pt", share_embeddings=True, vocab=vocab)
    (path.parent / "bpe.codes").write_text("#version: 0.2\nl o\nlo w</w>\ne r</w>\ne w</w>\n")
    done(xformc, "import", path.parent, "-o", tmp_path / "run")
    item = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"]
    ours = open_vocabulary(tmp_path / "run" / "tokenizer.json", item.vocabulary, item.special)
    assert ours.encode("low lower new") == [5, 4, 11, 6, 9, 10]


def test_everything_that_the_table_lacks_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    changed: dict[str, Any] = {"position_encoding": False, "max_relative_positions": 32, "num_experts": 4}
    changed |= {"parallel_residual": True, "copy_attn": True, "sliding_window": 9}
    path = write_opennmt(tmp_path / "model.pt", **changed, self_attn_type="average", layer_norm="odd")
    found = mistake(xformc("import", path, "-o", tmp_path / "run"))
    for line in (
        "max_relative_positions: 32 must be '0', '-1' or '-2'",
        "parallel_residual: true must be 'false', 'shared' or 'apart'",
        "self_attn_type: average must be 'scaled-dot' or 'scaled-dot-flash'",
        "copy_attn: true must be 'false'",
        "sliding_window: 9 must be '0'",
        "num_experts: 4 must be '0'",
        "layer_norm: odd must be 'standard' or 'rms'",
    ):
        assert f"\n  {line}" in found
    assert not (tmp_path / "run").exists()


USUAL: dict[str, Any] = {"src": SOURCE, "tgt": SOURCE, "data_task": "seq2seq", "decoder_start_token": "<s>"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decoder_type": "transformer_lm"}, "decoder_type: transformer_lm must be 'transformer'"),
        ({"encoder_type": "brnn"}, "encoder_type: brnn must be 'transformer'"),
        ({"max_relative_positions": -1}, "position_encoding and max_relative_positions exclude each other"),
        ({**ROTARY, "rotary_dim": 1}, "rotary_dim: 1 must be '0'"),
        ({"relative_positions_buckets": 8}, "relative_positions_buckets: 8 must be '0'"),
        ({**LANGUAGE_MODEL, "copy_attn": True}, "copy_attn: true must be 'false'"),
        (
            {**LANGUAGE_MODEL, "vocab": {"src": SOURCE, "tgt": SOURCE[::-1]}},
            "both vocabularies of a language model must have the same tokens",
        ),
        ({"lora_layers": ["w_1"]}, "lora_layers: ['w_1']: imported are whole weights in floats"),
        ({"dec_hid_size": 16}, "dec_hid_size: 16 differs from enc_hid_size"),
        ({"vocab": {"src": 3}}, "its vocabularies are no lists of tokens, as those of OpenNMT-py 3"),
        ({"vocab": {**USUAL, "src": SOURCE[::-1]}}, "must have one id, the same in both vocabularies"),
        ({"vocab": {**USUAL, "decoder_start_token": ""}}, " must have one id, the same in both vocabularies"),
    ],
)
def test_other_models_are_refused_by_name(
    xformc: CommandLine, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = write_opennmt(tmp_path / "model.pt", **changed)
    assert message in mistake(xformc("import", path, "-o", tmp_path / "run"))


def test_a_checkpoint_without_weights_is_refused(xformc: CommandLine, tmp_path: Path) -> None:
    content = torch.load(write_opennmt(tmp_path / "model.pt"), weights_only=False)
    del content["model"]
    torch.save(content, tmp_path / "model.pt")
    found = mistake(xformc("import", tmp_path / "model.pt", "-o", tmp_path / "run"))
    assert "has no weights, and there is no model.safetensors beside it" in found
