"""Small random encoders of transformers with their heads give the same values after an import, and after an export."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.numpy import load_file

from tests.imports.foreign import FAMILIES as FOREIGN
from tests.imports.foreign import write_config, write_foreign
from tests.imports.test_tokenizers import TEXTS
from xformc.runtime.engine import load

transformers: Any = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()
tokenizers: Any = pytest.importorskip("tokenizers")

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 60,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
DISTILLED = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "vocab_size": 60, "initializer_range": 0.3}
DISENTANGLED = {
    **SIZES,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "position_buckets": 8,
    "position_biased_input": False,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
PROTEINS = {**SIZES, "pad_token_id": 1, "mask_token_id": 32, "token_dropout": True, "position_embedding_type": "rotary"}
MIXED = {key: value for key, value in SIZES.items() if key != "num_attention_heads"}
MODERN = {**SIZES, "num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0, "sep_token_id": 3}
EUROPEAN = {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 7, "eos_token_id": 7}
FAMILIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "Bert": (SIZES, ("Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification")),
    "Roberta": (SIZES, ("ForMaskedLM", "ForSequenceClassification")),
    "XLMRoberta": (SIZES, ("ForTokenClassification",)),
    "DistilBert": (DISTILLED, ("Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification")),
    "DebertaV2": (DISENTANGLED, ("Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification")),
    "Deberta": (DISENTANGLED, ("ForMaskedLM", "ForSequenceClassification")),
    "Camembert": (SIZES, ("Model",)),
    "Ernie": (SIZES, ("ForMaskedLM",)),
    "MegatronBert": (SIZES, ("ForTokenClassification",)),
    "Albert": ({**SIZES, "embedding_size": 8}, ("Model", "ForMaskedLM", "ForSequenceClassification")),
    "FNet": (MIXED, ("ForMaskedLM", "ForSequenceClassification")),
    "MPNet": (SIZES, ("Model", "ForSequenceClassification")),
    "RoFormer": (SIZES, ("ForMaskedLM", "ForSequenceClassification")),
    "NomicBert": (SIZES, ("Model", "ForMaskedLM")),
    "Esm": (PROTEINS, ("ForMaskedLM", "ForTokenClassification")),
    "ModernBert": (MODERN, ("Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification")),
    "EuroBert": (EUROPEAN, ("Model", "ForMaskedLM", "ForSequenceClassification")),
    "Electra": ({**SIZES, "embedding_size": 16}, ("Model", "ForTokenClassification", "ForSequenceClassification")),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "ErnieForMaskedLM": {"use_task_id": True},
    "EsmForTokenClassification": {
        "emb_layer_norm_before": True,
        "position_embedding_type": "absolute",
        "token_dropout": False,
    },
    "EuroBertForMaskedLM": {"tie_word_embeddings": True, "pad_token_id": 5},
    "EuroBertForSequenceClassification": {"classifier_pooling": "mean"},
    "ModernBertForSequenceClassification": {"classifier_pooling": "mean"},
    "ModernBertForTokenClassification": {"norm_bias": True, "attention_bias": True},
    "RoFormerForMaskedLM": {"embedding_size": 8},
    "DebertaForSequenceClassification": {"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"},
    "DebertaForMaskedLM": {"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none", "legacy": False},
    "DebertaV2ForMaskedLM": {"share_att_key": False, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2},
    "DebertaV2ForTokenClassification": {
        "position_buckets": -1,
        "max_relative_positions": 9,
        "position_biased_input": True,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "norm_rel_ebd": "none",
        "num_hidden_layers": 2,
    },
}
LABELS = {0: "bad", 1: "so so", 2: "good"}


def save(folder: Path, family: str, head: str, **more: Any) -> Path:
    """A random model, with biases and gains that are random, too."""
    torch.manual_seed(0)
    settings = {**FAMILIES[family][0], **({"id2label": LABELS} if "Classification" in head else {}), **more}
    model = getattr(transformers, f"{family}{head}")(getattr(transformers, f"{family}Config")(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("family", "head"), [(family, head) for family, (_, heads) in FAMILIES.items() for head in heads]
)
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_comes_and_goes(xformc: CommandLine, tmp_path: Path, family: str, head: str) -> None:
    folder = save(tmp_path / "model", family, head, **VARIANTS.get(family + head, {}))
    run, back = tmp_path / "run", tmp_path / "back"
    result = xformc("import", folder, "-o", run, "--replay")
    assert result.code == 0, result.err
    result = xformc("export", "hf", run, "-o", back, "--replay")
    assert result.code == 0, result.err
    before, after = (load_file(path / "model.safetensors") for path in (folder, back))
    config, again = (json.loads((path / "config.json").read_text()) for path in (folder, back))
    prefix = "" if head != "Model" else f"{getattr(transformers, family + head).base_model_prefix}."
    rounded = ("position_embeddings.weight", "_type_embeddings.weight")  # the rows that nothing uses are 0
    renamed = ("pooler.", "fnet.pooler.", "lm_predictions.", "esm.contact_head.")  # or another name
    unread = ("embed_positions.weight", "inv_freq")
    same = [name for name in before if not name.endswith((*rounded, *unread)) and not name.startswith(renamed)]
    assert len(same) > 8 and all(np.array_equal(before[name], after[prefix + newer(name)]) for name in same)
    assert again["architectures"] == config["architectures"]
    if "Classification" in head:
        assert again["id2label"] == config["id2label"]
        assert (run / "labels.txt").read_text().splitlines() == list(LABELS.values())


def newer(name: str) -> str:
    """The name of a weight whose old name transformers may still write."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def write_word_pieces(path: Path) -> None:
    """A tokenizer as BERT's."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{one}" for one in "aeioustn"),
        "the",
    ]
    found = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    found.normalizer = tokenizers.normalizers.BertNormalizer()
    found.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    found.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    found.save(str(path))


@pytest.mark.filterwarnings("ignore")
def test_sentences_have_the_vectors_of_the_origin(xformc: CommandLine, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", "Bert", "Model")
    write_word_pieces(folder / "tokenizer.json")
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"idx": i, "path": "", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = write_config(folder / "1_Pooling", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    for command in (
        ("import", folder, "-o", tmp_path / "run", "--replay"),
        ("export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--replay"),
        ("import", tmp_path / "back", "-o", tmp_path / "again"),
        ("build", tmp_path / "again", "-o", tmp_path / "engine", "--target", "portable"),
    ):
        result = xformc(*command)
        assert result.code == 0, result.err
    engine = load(tmp_path / "engine", threads=1)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    origin = transformers.AutoModel.from_pretrained(folder).eval()
    for text, found in zip(TEXTS, engine.predict(TEXTS), strict=True):
        ids = torch.tensor([theirs.encode(text).ids])
        assert ids[0, 0] == 2 and ids[0, -1] == 3
        with torch.no_grad():
            wanted = torch.nn.functional.normalize(origin(ids).last_hidden_state.mean(1), dim=-1)[0]
        np.testing.assert_allclose(found.results["states"], wanted.numpy(), rtol=0, atol=1e-5)
    write_config(pooling, {"pooling_mode_lasttoken": True})
    found = mistake(xformc("import", folder, "-o", tmp_path / "none"))
    assert "1_Pooling/config.json: pools by lasttoken; imported is one of mean_tokens, cls_token, max_tokens" in found
    (folder / "modules.json").write_text(json.dumps([*modules, {"type": "sentence_transformers.models.Dense"}]))
    assert "has the modules Transformer, Pooling, Normalize, Dense; " in mistake(
        xformc("import", folder, "-o", tmp_path / "none")
    )


BERT = {**SIZES, "model_type": "bert", "architectures": ["BertModel"]}
DEBERTA = {**FOREIGN["deberta-v2"], "max_relative_positions": -1, "conv_kernel_size": 0, "type_vocab_size": 0}
VALUES = [None, True, -1, 0, 2**70, 1e300, float("nan"), "", "x" * 1000, [], {}, [1, [2]], {"a": {"b": 3}}, 0.5]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: relative_key must be 'absolute'"),
        ({"architectures": ["BertForQuestionAnswering"]}, "architectures.0: BertForQuestionAnswering must be "),
        ({"model_type": "deberta-v2", "pos_att_type": ["c2p", "p2p"]}, "pos_att_type: c2p|p2p must be "),
        ({"is_decoder": True, "hidden_act": "mish"}, "hidden_act: mish must be "),
        (
            {"architectures": ["BertForTokenClassification"], "id2label": {"0": "a", "7": "b"}},
            "id2label must name each",
        ),
    ],
)
def test_what_an_encoder_asks_and_a_table_lacks_is_named(
    xformc: CommandLine, tmp_path: Path, change: dict[str, object], line: str
) -> None:
    write_foreign(tmp_path / "model", {**BERT, "architectures": change.get("architectures", ["BertModel"])}) if (
        "id2label" in change
    ) else write_config(tmp_path / "model", BERT)
    write_config(tmp_path / "model", {**BERT, **change})
    assert line in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("config", [BERT, DEBERTA], ids=["bert", "deberta"])
def test_a_mutated_encoder_ends_in_one_error_or_an_import(xformc: CommandLine, tmp_path: Path, config: dict) -> None:
    draw, folder = np.random.default_rng(1), tmp_path / "model"
    write_foreign(folder, config)
    keys = [*config, "architectures", "id2label", "num_labels", "sentence", "pad_token_id"]
    for turn in range(12):
        changed = {str(draw.choice(keys)): VALUES[int(draw.integers(len(VALUES)))] for _ in range(1 + turn % 3)}
        write_config(folder, {**config, **changed})
        out = tmp_path / f"run{turn}"
        result = xformc("import", folder, "-o", out)
        assert out.is_dir() if result.code == 0 else mistake(result), changed
        assert out.exists() == (result.code == 0)
    whole = json.dumps([{"type": "a.Transformer"}, {"type": "a.Pooling"}]).encode()
    for _ in range(8):
        place, byte = int(draw.integers(len(whole))), int(draw.integers(256))
        (folder / "modules.json").write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        assert mistake(xformc("import", folder, "-o", tmp_path / "none"))
