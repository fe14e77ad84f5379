"""Text as examples, for each task that reads text."""

from pathlib import Path

import numpy as np
import pytest
from tiny_model import pair_examples, text_examples

from xformc.compiler.graph.axes import Axis
from xformc.compiler.spec.model import Input
from xformc.compiler.spec.problems import Source, Span
from xformc.compiler.spec.sections import Tokenizer as TokenizerSection
from xformc.errors import UserError
from xformc.trainer.data.batches import Batch, Examples, make_batch, plan_batches
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.dataset import describe_corpus, encode_corpus, find_corpus, read_corpus
from xformc.trainer.data.text_examples import encode_texts, load_for, train_on
from xformc.trainer.data.text_files import Texts, read_texts
from xformc.trainer.data.vocabulary import save_tokenizer

WORDS = TokenizerSection(kind="word")


def tokens(size: int = 50) -> Input:
    return Input("tokens", (Axis("vocabulary", size),), None, Span(Source("model.yaml", ""), 1, 1, 1))


def schema(task: str, *inputs: str, longest: int = 16, positions: str | None = None) -> DataSchema:
    return DataSchema(task, {name: tokens() for name in inputs}, 2, positions, longest)


def read(tmp_path: Path, content: str, schema: DataSchema) -> Texts:
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    return read_texts((tmp_path / "a.tsv",), schema.columns)


def only(examples: Examples) -> Batch:
    return make_batch(examples, np.arange(len(examples)))


def test_text_examples_predict_every_token_once_in_pieces() -> None:
    examples = text_examples([[4, 5, 6, 7, 8], [9]], longest=4)
    batch = only(examples)
    assert batch.inputs["text"].tolist() == [[2, 4, 5, 6], [7, 8, 0, 0], [2, 9, 0, 0]]
    assert batch.labels.tolist() == [[4, 5, 6, 7], [8, 3, 0, 0], [9, 3, 0, 0]]
    assert (batch.count, examples.too_long) == (8, 0)


def test_text_examples_of_an_exact_length_have_no_empty_piece() -> None:
    assert only(text_examples([[4, 5, 6]], longest=2)).labels.tolist() == [[4, 5], [6, 3]]


def test_pair_examples_pad_no_further_than_the_longest() -> None:
    batch = only(pair_examples([[4] * 4], [[5]], longest=5))
    assert {name: tensor.shape for name, tensor in batch.inputs.items()} == {"source": (1, 5), "target": (1, 2)}


def test_classification_has_one_label_and_ends_its_inputs(tmp_path: Path) -> None:
    wanted = schema("classification", "premise", "hypothesis")
    texts = read(tmp_path, "a b\tc\tyes\nb\tc a b\tno\n\nx\ty\t\n", wanted)
    assert texts.empty == 2
    tokenizer = train_on(texts, wanted, WORDS)
    batch = only(encode_texts(texts, wanted, tokenizer, ("no", "yes")))
    assert list(batch.inputs) == ["premise", "hypothesis"]
    assert batch.inputs["premise"][1].tolist() == [tokenizer.vocabularies["premise"].encode(["b"])[0][0], 3, 0, 0]
    assert batch.inputs["hypothesis"].shape == (2, 4)
    assert batch.labels.tolist() == [1, 0]
    assert batch.count == 2


def test_tagging_has_a_label_for_each_word(tmp_path: Path) -> None:
    wanted = schema("tagging", "text", positions="text")
    texts = read(tmp_path, "the dog runs\tD N V\nruns\tV\n", wanted)
    tokenizer = train_on(texts, wanted, WORDS)
    examples = encode_texts(texts, wanted, tokenizer, ("D", "N", "V"))
    batch = only(examples)
    assert batch.labels.tolist() == [[0, 1, 2, -100], [2, -100, -100, -100]]
    assert batch.inputs["text"][0, 2] == batch.inputs["text"][1, 0]
    assert batch.inputs["text"][1].tolist()[1:] == [0, 0, 0]
    assert batch.count == 4


def test_tagging_names_the_line_with_other_numbers_of_words_and_labels(tmp_path: Path) -> None:
    wanted = schema("tagging", "text", positions="text")
    texts = read(tmp_path, "a\tD\n\na b\tD D D\na\tD D\n", wanted)
    with pytest.raises(UserError, match=r"2 words and 3 labels \(1 more lines also differ\)") as caught:
        encode_texts(texts, wanted, train_on(texts, wanted, WORDS), ("D",))
    assert caught.value.place == f"{tmp_path / 'a.tsv'}:3"


def test_unknown_labels_are_named_with_their_line(tmp_path: Path) -> None:
    wanted = schema("classification", "text")
    texts = read(tmp_path, "a\tyes\nb\tmaybe\nc\tnever\n", wanted)
    with pytest.raises(UserError, match="the model does not know: maybe, never") as caught:
        encode_texts(texts, wanted, train_on(texts, wanted, WORDS), ("no", "yes"))
    assert caught.value.place == f"{tmp_path / 'a.tsv'}:2"
    assert caught.value.hint == "the labels are no, yes"


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 columns; 3 are required") as caught:
        read(tmp_path, "a\tyes\n", schema("classification", "premise", "hypothesis"))
    assert caught.value.hint == "each line must be premise, one tab, hypothesis, one tab, labels"


def test_language_model_reads_lines_and_keeps_its_tokenizer(tmp_path: Path) -> None:
    wanted = schema("language_model", "text")
    texts = read(tmp_path, "one two\nthree\n", wanted)
    tokenizer = train_on(texts, wanted, WORDS)
    save_tokenizer(tokenizer, tmp_path)
    assert load_for(wanted, WORDS, tmp_path) == tokenizer
    assert only(encode_texts(texts, wanted, tokenizer, ())).count == 5


def test_batches_of_every_kind_hold_all_examples(tmp_path: Path) -> None:
    wanted = schema("classification", "premise", "hypothesis", longest=9)
    content = "".join(f"{'a ' * (1 + i % 7)}\t{'b ' * (1 + i % 5)}\tyes\n" for i in range(60))
    texts = read(tmp_path, content, wanted)
    examples = encode_texts(texts, wanted, train_on(texts, wanted, WORDS), ("yes",))
    plan = plan_batches(examples, 40, 1, 0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(60))
    assert all(tensor.numel() <= 40 for rows in plan for tensor in make_batch(examples, rows).inputs.values())


def test_describe_corpus_counts_what_was_left_out(tmp_path: Path) -> None:
    for name, content in (("train.tsv", "a b c d\te\n\nf\tg h\n\t\ni\t\n"), ("valid.tsv", "a\te\n")):
        (tmp_path / name).write_text(content)
    wanted = schema("translation", "source", "target", longest=4)
    corpus = read_corpus(find_corpus(tmp_path, wanted), wanted)
    assert isinstance(corpus.train, Texts)
    encoded = encode_corpus(corpus, wanted, train_on(corpus.train, wanted, WORDS))
    assert list(describe_corpus(corpus, encoded)) == [
        "training: 1 examples (dropped: 3 with an empty column and 1 longer than 4 positions)",
        "validation: 1 examples",
    ]


def test_a_text_may_be_empty_beside_another(tmp_path: Path) -> None:
    """As in prediction; a label may not, nor may all texts."""
    for name in ("train.tsv", "valid.tsv"):
        (tmp_path / name).write_text("a b\t\tyes\n\tb\tno\n\t\tno\na\tb\t\n", encoding="utf-8")
    wanted = schema("classification", "premise", "hypothesis", longest=9)
    corpus = read_corpus(find_corpus(tmp_path, wanted), wanted)
    assert isinstance(corpus.train, Texts) and corpus.train.lines == [1, 2] and corpus.train.empty == 2
    examples = encode_texts(corpus.train, wanted, train_on(corpus.train, wanted, WORDS), ("no", "yes"))
    inputs = only(examples).inputs
    assert [int(inputs["hypothesis"][0].sum()), int(inputs["premise"][1].sum())] == [3, 3]  # the end tokens


@pytest.mark.parametrize(
    ("name", "line"), [("classification", "a b c d\tno\n"), ("tagging", "a b c d e\tno no no no no\n")]
)
def test_long_examples_with_labels_are_counted(tmp_path: Path, name: str, line: str) -> None:
    wanted = schema(name, "text", longest=4, positions="text" if name == "tagging" else None)
    texts = read(tmp_path, line + "a\tno\n", wanted)
    examples = encode_texts(texts, wanted, train_on(texts, wanted, WORDS), ("no",))
    assert (len(examples), examples.too_long) == (1, 1)
