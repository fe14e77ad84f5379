"""Inputs whose texts have no end token: in the spec, in engines of both runtimes, and in training data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

import xformc
from tests.runtime.kernel_session import kernel_library
from xformc import UserError
from xformc.compiler.spec import SpecError, load_spec
from xformc.format.reader import read_manifest
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.data.batches import make_batch
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import describe_corpus, encode_corpus, find_corpus, make_tokenizer, read_corpus
from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
from xformc.trainer.data.splits import find_pairs
from xformc.trainer.train import Options, train_weights

OPEN = "inputs: {source: {tokens: vocabulary, ends: false}}\n"
SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 50, d_k: 8, d_v: 8}
train: {steps: 1, batch_tokens: 200, max_length: 20, tokenizer: {kind: char}, precision: float32}
"""
SENTENCES = ["one two three four", "five six", "seven eight"] * 4


def train_model(path: Path) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_prefix=str(path.with_suffix("")), vocab_size=40,
        hard_vocab_limit=False, minloglevel=2, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel_library()
    folder = tmp_path_factory.mktemp("open")
    (folder / "spec.yaml").write_text(SPEC + OPEN)
    model = train_model(folder / "tokenizer.model")
    tokenizers = {"source": model, "target": model}
    xformc.build(folder / "spec.yaml", folder / "engine", tokenizers=tokenizers, target="native")
    return folder / "engine"


def test_both_runtimes_read_texts_without_an_end(engine: Path) -> None:
    manifest = read_manifest(engine)
    assert not manifest.inputs["source"].special.ends and manifest.inputs["target"].special.ends
    loaded, texts = xformc.load(engine, threads=1), ["one two", "", "seven", "f"]
    assert loaded.tokenizer is not None
    source, target = loaded.tokenizer.encode("source", "one two"), loaded.tokenizer.encode("target", "one two")
    assert target == [*source, 3] and not loaded.tokenizer.encode("source", "")
    found, other = loaded.translate(texts), CppEngine(engine).translate(texts)
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in other]
    assert found[1][0].tokens == () and all(found[row][0].tokens for row in (0, 2, 3))
    (alone,) = loaded.search([source]).texts()[0]
    assert alone == found[0][0].tokens
    with loaded.serve(slots=2) as server:
        replies: list[Any] = [server.submit(text) for text in texts]
        assert [reply.result()[0].tokens for reply in replies] == [row[0].tokens for row in found]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SPEC + OPEN.replace("source", "target"), "'target' cannot have 'ends: false': the model ends it by an end"),
        (SPEC + OPEN.replace("false", "7"), "must be true or false, found 7"),
        (
            "extends: text_classifier\ninputs: {text: {tokens: vocabulary, ends: false},"
            " kind: {tokens: vocabulary, along: text}}\n",
            "'text' cannot have 'ends: false': tokens along it have an end",
        ),
        (
            "extends: text_classifier\ninputs: {kind: {tokens: vocabulary, along: text, ends: false}}\n",
            "cannot have 'ends': only tokens with positions of their own are texts with an end",
        ),
        (
            "extends: vit\ninputs: {image: {values: [height, width, channels], ends: false}}\n",
            "cannot have 'ends': only tokens with positions of their own are texts with an end",
        ),
    ],
)
def test_ends_that_cannot_be_are_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "spec.yaml")
    assert any(message in problem.message for problem in caught.value.problems), caught.value


def test_template_with_an_end_is_refused(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<unk>": 1, "</s>": 3, "a": 4}, "<unk>"))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "spec.yaml").write_text(SPEC + OPEN)
    special = load_spec(tmp_path / "spec.yaml").inputs["source"].special
    with pytest.raises(UserError, match="its template puts tokens after a text, but the input has no end"):
        open_vocabulary(tmp_path / "tokenizer.json", 50, special)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "data" / f"{name}.src").write_text("\n".join([*SENTENCES, "\u200b"]) + "\n")
        (tmp_path / "data" / f"{name}.tgt").write_text("\n".join([*SENTENCES, "six"]) + "\n")
    (tmp_path / "spec.yaml").write_text(SPEC + OPEN)
    return tmp_path / "data"


def test_training_data_has_no_end_and_no_empty_text(data: Path, tmp_path: Path) -> None:
    spec = load_spec(tmp_path / "spec.yaml")
    schema = data_schema(spec)
    files = find_pairs(data)
    prepare(spec, Preparation([Corpus("data", files.train)], files.valid), tmp_path / "prepared")
    for folder in (data, tmp_path / "prepared"):
        corpus = read_corpus(find_corpus(folder, schema), schema)
        encoded = encode_corpus(corpus, schema, make_tokenizer(corpus.train, schema, spec.train.tokenizer))
        ((_, examples),) = encoded.train.windows(0, 0)
        batch = make_batch(examples, np.arange(len(examples)))
        assert len(examples) == len(SENTENCES)
        assert not (batch.inputs["source"] == 3).any() and (batch.labels == 3).sum() == len(SENTENCES)
    corpus = read_corpus(find_corpus(data, schema), schema)
    encoded = encode_corpus(corpus, schema, make_tokenizer(corpus.train, schema, spec.train.tokenizer))
    assert any("1 without tokens" in line for line in describe_corpus(corpus, encoded))


@pytest.mark.processor
def test_training_resumes_with_its_vocabulary_and_prepared_data_must_fit(data: Path, tmp_path: Path) -> None:
    spec, run, prepared = load_spec(tmp_path / "spec.yaml"), tmp_path / "run", tmp_path / "prepared"
    train_weights(spec, data, run, Options(), quiet=True)
    assert train_weights(spec, data, run, Options(resume=True), quiet=True).state.step == 1
    assert [path.name for path in run.glob("*.model")] == ["tokenizer.model"]
    train_weights(spec, data, tmp_path / "tuned", Options(start=run), quiet=True)
    assert [path.name for path in (tmp_path / "tuned").glob("*.model")] == ["tokenizer.model"]
    files = find_pairs(data)
    prepare(spec, Preparation([Corpus("data", files.train)], files.valid, tokenizer=run), prepared)
    train_weights(spec, prepared, tmp_path / "third", Options(), quiet=True)
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(
        UserError, match="the texts of 'source' are between other special tokens than those of the spec"
    ):
        train_weights(load_spec(tmp_path / "spec.yaml"), prepared, tmp_path / "other", Options(), quiet=True)


def test_texts_of_an_objective_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "data" / f"{name}.txt").write_text("\n".join(SENTENCES) + "\n")
    text = f"extends: span_corruption\n{OPEN}train: {{steps: 1}}\n"
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(UserError, match="ends: false: the texts of an objective have an end"):
        train_weights(load_spec(tmp_path / "spec.yaml"), tmp_path / "data", tmp_path / "run", Options(), quiet=True)
