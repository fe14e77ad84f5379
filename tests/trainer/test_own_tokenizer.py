"""A run with a vocabulary of one's own: trained elsewhere, checked, and kept in the run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from command_line import CommandLine, mistake

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.data.batches import Batch, make_batch
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, read_corpus
from xformc.trainer.data.own_vocabulary import own_tokenizer
from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.data.vocabulary import Tokenizer
from xformc.trainer.train import Options, train_weights

SENTENCES = [
    "the quick brown <ph> fox jumps over the lazy dog", "one two three four five six seven eight nine ten",
    "a man rides a red bicycle", "two dogs play in the snow",
] * 8  # fmt: skip
SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 16, vocabulary: 64, max_positions: 40}
train: {steps: 1, batch_tokens: 200, max_length: 40, precision: float32}
"""
SPECIAL = "special_tokens: {pad: 63, unknown: 0, begin: 1, end: 2}\n"


def train_model(path: Path, **options: Any) -> Path:
    trainer: Any = sentencepiece.SentencePieceTrainer
    settings = {"vocab_size": 60, "model_type": "bpe", "user_defined_symbols": ["<ph>"], "minloglevel": 2, **options}
    trainer.train(sentence_iterator=iter(SENTENCES), model_prefix=str(path.with_suffix("")), **settings)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "data" / f"{name}.txt").write_text("\n".join(SENTENCES[:4]))
    return tmp_path / "data"


@pytest.mark.processor
@pytest.mark.parametrize("kind", ["model", "json"])
def test_a_run_has_the_tokenizer_that_it_was_given(data: Path, tmp_path: Path, kind: str) -> None:
    own = (train_model if kind == "model" else write_words)(tmp_path / f"own.{kind}")
    (tmp_path / "tiny.yaml").write_text(SPEC + SPECIAL)
    spec, run = load_spec(tmp_path / "tiny.yaml"), tmp_path / "run"
    train_weights(spec, data, run, Options(tokenizer=own), quiet=True)
    kept = run / f"tokenizer.{kind}"
    assert kept.read_bytes() == own.read_bytes()
    assert len(json.loads((run / "run.json").read_text())["tokenizer_sha256"]) == 64
    again = train_weights(spec, data, run, Options(tokenizer=own, resume=True), quiet=True)
    assert again.state.step == 1
    other = train_model(tmp_path / "other.model", vocab_size=50)
    with pytest.raises(UserError, match="the tokenizer has changed"):
        train_weights(spec, data, run, Options(tokenizer=other, resume=True), quiet=True)
    tokenizer = open_vocabulary(kept, 64, spec.inputs["text"].special)
    ids = tokenizer.encode("the <ph>dog")
    assert [piece for piece in tokenizer.pieces(ids) if {"<", ">"} & {*piece}] == ["<ph>"]
    assert "<ph>" in tokenizer.decode(ids), "a symbol of one's own is never split"


def write_words(path: Path) -> Path:
    """A tokenizer.json of words, with a symbol of one's own."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    words = sorted({word for sentence in SENTENCES for word in sentence.split() if word != "<ph>"})
    ids = {word: place for place, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_tokens(["<ph>"])
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_that_does_not_fit_is_refused(xformc: CommandLine, data: Path, tmp_path: Path) -> None:
    (tmp_path / "usual.yaml").write_text(SPEC)
    command = ("train", tmp_path / "usual.yaml", "--data", data, "-o", tmp_path / "run", "--tokenizer")
    own = train_model(tmp_path / "own.model")
    found = mistake(xformc(*command, own))
    assert "own.model: has the special tokens [-1, 0, 1, 2] (pad, unknown, begin, end), not [0, 1, 2, 3]" in found
    special = "{pad: 60, unknown: 0, begin: 1, end: 2}"
    assert f"a spec for it has `special_tokens: {special}` and a vocabulary of at least 61" in found
    large = train_model(tmp_path / "large.model", vocab_size=66, pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    assert "has 66 pieces; the engine's vocabulary 64" in mistake(xformc(*command, large))
    (tmp_path / "none").write_text("no model")
    assert "none: not a SentencePiece model" in mistake(xformc(*command, tmp_path / "none"))
    assert "missing: cannot be read" in mistake(xformc(*command, tmp_path / "missing"))
    assert "--tokenizer and --start exclude each other" in mistake(xformc(*command, own, "--start", tmp_path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["model", "json"])
def test_prepared_texts_have_the_tokenizer_that_they_were_given(data: Path, tmp_path: Path, kind: str) -> None:
    """Their batches are those of the texts, with the same special tokens."""
    own = (train_model if kind == "model" else write_words)(tmp_path / f"own.{kind}")
    (tmp_path / "tiny.yaml").write_text(SPEC + SPECIAL)
    spec, out = load_spec(tmp_path / "tiny.yaml"), tmp_path / "prepared"
    schema, files = data_schema(spec), (data / "train.txt",)
    prepare(spec, Preparation([Corpus("one", files)], files, own), out)
    assert (out / f"tokenizer.{kind}").read_bytes() == own.read_bytes()

    def batch(folder: Path, tokenizer: Tokenizer) -> Batch:
        corpus = read_corpus(find_corpus(folder, schema), schema)
        ((_, examples),) = encode_corpus(corpus, schema, tokenizer).train.windows(1, 0)
        return make_batch(examples, np.arange(len(examples)))

    of_text, of_blocks = (
        batch(data, own_tokenizer(own, schema)),
        batch(out, load_for(schema, spec.train.tokenizer, out)),
    )
    assert torch.equal(of_text.inputs["text"], of_blocks.inputs["text"]) and 63 in of_text.inputs["text"]
    assert torch.equal(of_text.labels, of_blocks.labels)
    assert train_weights(spec, out, tmp_path / "run", Options(), quiet=True).state.step == 1
    with pytest.raises(UserError, match="xformc trains vocabularies with its own special tokens"):
        prepare(spec, Preparation([Corpus("one", files)], files), tmp_path / "none")
    (tmp_path / "tiny.yaml").write_text(SPEC + SPECIAL.replace("begin: 1, ", "begin: none, "))
    other = load_spec(tmp_path / "tiny.yaml")
    if kind == "json":
        with pytest.raises(UserError, match="the texts of 'text' are between other special tokens"):
            train_weights(other, out, tmp_path / "other", Options())
