from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.trainer.data.vocabulary import Kind, load_tokenizer, save_tokenizer, train_tokenizer

SOURCES = [f"the {a} {b} runs" for a in ("red", "green", "blue") for b in ("fox", "dog", "wolf", "hare")]
TARGETS = [line.replace("the", "der").replace("runs", "rennt") for line in SOURCES]
TEXTS = {"source": SOURCES, "target": TARGETS}
SIZES = {"source": 40, "target": 40}


@pytest.mark.parametrize(("kind", "size"), [("bpe", 27), ("unigram", 27), ("word", 15), ("char", 21)])
def test_train_tokenizer_gives_the_same_bytes_again(kind: Kind, size: int) -> None:
    first, second = (train_tokenizer(TEXTS, {"source": 27, "target": 27}, kind=kind, shared=True) for _ in range(2))
    assert first == second
    assert len(first.vocabularies["source"]) == size


def test_train_tokenizer_fixes_the_special_ids() -> None:
    vocabulary = train_tokenizer(TEXTS, {"source": 40, "target": 40}, kind="bpe", shared=True).vocabularies["source"]
    processor = vocabulary.processor()
    special = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    assert special == [0, 1, 2, 3]
    assert min(min(ids) for ids in vocabulary.encode(SOURCES)) > 3
    assert 1 in vocabulary.encode(["漢"])[0]


def test_save_tokenizer_writes_what_load_tokenizer_reads(tmp_path: Path) -> None:
    for shared, sizes, names in (
        (True, {"source": 40, "target": 40}, {"tokenizer.model"}),
        (False, {"source": 36, "target": 40}, {"source.model", "target.model"}),
    ):
        folder = tmp_path / str(shared)
        tokenizer = train_tokenizer(TEXTS, sizes, kind="bpe", shared=shared)
        save_tokenizer(tokenizer, folder)
        assert {path.name for path in folder.iterdir()} == names
        assert set(tokenizer.files().values()) == names
        assert load_tokenizer(folder, sizes, kind="bpe", shared=shared) == tokenizer


def test_train_tokenizer_says_the_largest_possible_size() -> None:
    with pytest.raises(UserError, match="too small for a shared vocabulary of 5000 pieces") as caught:
        train_tokenizer(TEXTS, {"source": 5000, "target": 5000}, kind="bpe", shared=True)
    most = int((caught.value.hint or "").split()[3])
    assert (
        len(train_tokenizer(TEXTS, {"source": most, "target": most}, kind="bpe", shared=True).vocabularies["source"])
        == most
    )
    with pytest.raises(UserError, match=f"at most {most}"):
        train_tokenizer(TEXTS, {"source": most + 1, "target": most + 1}, kind="bpe", shared=True)


def test_train_tokenizer_says_how_many_characters_there_are() -> None:
    with pytest.raises(UserError, match="source vocabulary has 10 pieces, but the text's characters alone need"):
        train_tokenizer(TEXTS, {"source": 10, "target": 40}, kind="bpe", shared=False)


def test_train_tokenizer_refuses_two_sizes_for_one_vocabulary() -> None:
    with pytest.raises(UserError, match="one size, but the inputs' vocabularies have 40 and 50"):
        train_tokenizer(TEXTS, {"source": 40, "target": 50}, kind="bpe", shared=True)


def test_load_tokenizer_refuses_what_is_not_the_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path, SIZES, kind="bpe", shared=True)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path, SIZES, kind="bpe", shared=True)
    save_tokenizer(train_tokenizer(TEXTS, {"source": 40, "target": 40}, kind="bpe", shared=True), tmp_path)
    with pytest.raises(UserError, match="has 40 pieces; the spec's vocabulary is 41"):
        load_tokenizer(tmp_path, {"source": 41, "target": 41}, kind="bpe", shared=True)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_load_tokenizer_takes_a_whole_vocabulary_below_its_bound(tmp_path: Path, kind: Kind) -> None:
    sizes = {"text": 100}
    tokenizer = train_tokenizer({"text": SOURCES}, sizes, kind=kind, shared=False)
    assert tokenizer.files() == {"text": "tokenizer.model"}
    save_tokenizer(tokenizer, tmp_path)
    assert load_tokenizer(tmp_path, sizes, kind=kind, shared=False) == tokenizer
    with pytest.raises(UserError, match="the spec's vocabulary is 100"):
        load_tokenizer(tmp_path, sizes, kind="bpe", shared=False)
    with pytest.raises(UserError, match="the spec's vocabulary is 10"):
        load_tokenizer(tmp_path, {"text": 10}, kind=kind, shared=False)


def test_train_tokenizer_of_words_keeps_the_most_frequent() -> None:
    vocabulary = train_tokenizer({"text": ["a b", "a c", "b a"]}, {"text": 6}, kind="word", shared=True)
    assert vocabulary.vocabularies["text"].encode_words(["a b c"]) == [[4, 5, 1]]


def test_encode_words_gives_a_piece_a_word() -> None:
    """SentencePiece alone makes one piece of neighbouring unknown words, and two of a word like the last."""
    vocabulary = train_tokenizer({"text": SOURCES}, {"text": 50}, kind="word", shared=True).vocabularies["text"]
    known = vocabulary.encode(["fox"])[0][0]
    assert vocabulary.encode_words(["fox cow pig fox \N{DIAERESIS}fox", ""]) == [[known, 1, 1, known, 1], []]


def test_train_tokenizer_reads_long_lines() -> None:
    vocabulary = train_tokenizer({"text": ["a " * 5000 + "end"]}, {"text": 50}, kind="word", shared=True)
    assert len(vocabulary.vocabularies["text"]) == 6
