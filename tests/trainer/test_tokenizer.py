from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.trainer.tokenizer import Kind, load_tokenizer, save_tokenizer, train_tokenizer

SOURCES = [f"the {a} {b} runs" for a in ("red", "green", "blue") for b in ("fox", "dog", "wolf", "hare")]
TARGETS = [line.replace("the", "der").replace("runs", "rennt") for line in SOURCES]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_train_tokenizer_gives_the_same_bytes_again(kind: Kind) -> None:
    first, second = (train_tokenizer(SOURCES, TARGETS, (27, 27), kind=kind, shared=True) for _ in range(2))
    assert first == second
    assert len(first.source) == 27


def test_train_tokenizer_fixes_the_special_ids() -> None:
    vocabulary = train_tokenizer(SOURCES, TARGETS, (40, 40), kind="bpe", shared=True).source
    processor = vocabulary.processor()
    special = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    assert special == [0, 1, 2, 3]
    assert min(min(ids) for ids in vocabulary.encode(SOURCES)) > 3
    assert 1 in vocabulary.encode(["漢"])[0]


def test_save_tokenizer_writes_what_load_tokenizer_reads(tmp_path: Path) -> None:
    for shared, sizes, names in (
        (True, (40, 40), {"tokenizer.model"}),
        (False, (36, 40), {"source.model", "target.model"}),
    ):
        folder = tmp_path / str(shared)
        tokenizer = train_tokenizer(SOURCES, TARGETS, sizes, kind="bpe", shared=shared)
        save_tokenizer(tokenizer, folder)
        assert {path.name for path in folder.iterdir()} == names
        assert set(tokenizer.files().values()) == names
        assert load_tokenizer(folder, sizes, shared=shared) == tokenizer


def test_train_tokenizer_says_the_largest_possible_size() -> None:
    with pytest.raises(UserError, match="too small for a shared vocabulary of 5000 pieces") as caught:
        train_tokenizer(SOURCES, TARGETS, (5000, 5000), kind="bpe", shared=True)
    most = int((caught.value.hint or "").split()[3])
    assert len(train_tokenizer(SOURCES, TARGETS, (most, most), kind="bpe", shared=True).source) == most
    with pytest.raises(UserError, match=f"at most {most}"):
        train_tokenizer(SOURCES, TARGETS, (most + 1, most + 1), kind="bpe", shared=True)


def test_train_tokenizer_says_how_many_characters_there_are() -> None:
    with pytest.raises(UserError, match="source vocabulary has 10 pieces, but the text's characters alone are"):
        train_tokenizer(SOURCES, TARGETS, (10, 40), kind="bpe", shared=False)


def test_train_tokenizer_refuses_two_sizes_for_one_vocabulary() -> None:
    with pytest.raises(UserError, match="one size, but the inputs' vocabularies have 40 and 50"):
        train_tokenizer(SOURCES, TARGETS, (40, 50), kind="bpe", shared=True)


def test_load_tokenizer_refuses_what_is_not_the_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path, (40, 40), shared=True)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path, (40, 40), shared=True)
    save_tokenizer(train_tokenizer(SOURCES, TARGETS, (40, 40), kind="bpe", shared=True), tmp_path)
    with pytest.raises(UserError, match="has 40 pieces, where the spec's vocabulary is 41"):
        load_tokenizer(tmp_path, (41, 41), shared=True)
