import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from several_processes import write_tiny

from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, make_tokenizer, read_corpus
from xformc.trainer.data.redrawn_texts import KEPT, Redraw, redraw_of
from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
from xformc.trainer.data.splits import find_pairs
from xformc.trainer.data.subword_sampling import Subwords, sampled
from xformc.trainer.data.vocabulary import Kind, train_vocabulary
from xformc.trainer.train import Options, train_weights


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_segmentations_follow_from_the_seed_and_the_epoch(tmp_path: Path, kind: Kind) -> None:
    change = ("train:\n", f"train:\n  tokenizer: {{kind: {kind}, sampling: 0.3}}\n")
    write_tiny(tmp_path, change, ("vocabulary: 60", "vocabulary: 40"))
    spec = load_spec(tmp_path / "tiny.yaml")
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(tmp_path / "data", schema), schema)
    tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
    data = encode_corpus(corpus, schema, tokenizer, redraw_of(spec, schema)).train
    usual = encode_corpus(corpus, schema, tokenizer).train

    def tokens(seed: int, epoch: int) -> list[int]:
        ((number, examples),) = data.windows(seed, epoch)
        assert number == 0 and not list(data.windows(seed, epoch, 1))
        return [*examples.inputs["source"].lengths(), *examples.inputs["target"].lengths()]

    first = tokens(1, 0)
    assert first == tokens(1, 0)
    assert first != tokens(1, 1) and first != tokens(2, 0)
    assert len(data) == len(usual)
    ((_, whole),) = usual.windows(1, 0)
    assert np.sum(first) > whole.inputs["source"].lengths().sum() + whole.inputs["target"].lengths().sum()


DRAWN = """\
import sys
from xformc.trainer.data.subword_sampling import Subwords
from xformc.trainer.data.vocabulary import Vocabulary
model = open(sys.argv[1], "rb").read()
print(Subwords(model, 0.3).redraw(Vocabulary(model).encode(["one two three four five six seven"] * 20), (1, 2)))
"""


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_segmentations_are_those_of_every_other_process(tmp_path: Path, kind: Kind) -> None:
    """SentencePiece's own draws are not: runs would not resume, and processes would train on other batches."""
    texts = ["one two three four five six seven eight nine ten eleven twelve"] * 4
    (tmp_path / "some.model").write_bytes(train_vocabulary(texts, 27, kind=kind, of="source").model)
    found = {
        subprocess.run(
            [sys.executable, "-c", DRAWN, "some.model"], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(found) == 1 and len(found.pop()) > 1000


def test_merges_are_left_out_at_the_rate() -> None:
    """With one merge, and with two, of which the second can only be made after the first."""
    for merges in (1, 2):
        known = train_vocabulary(["ab ab ab ab"] * 9, 7 + merges, kind="bpe", of="source")
        rows = known.encode(["ab"] * 64)
        assert len(rows[0]) == 3 - merges
        drawn = [row for seed in range(80) for row in Subwords(known.model, 0.25).redraw(rows, (seed,))]
        assert np.mean([row == rows[0] for row in drawn]) == pytest.approx(0.75**merges, abs=0.03)
        assert known.decode(drawn[:50]) == ["ab"] * 50


def test_unigram_segmentations_have_their_probabilities() -> None:
    known = train_vocabulary(["abc ab bc c a b abcd"] * 9, 13, kind="unigram", of="source")
    processor = known.processor()
    scores = {processor.id_to_piece(index): processor.get_score(index) for index in range(4, 13)}

    def segmentations(word: str) -> Iterator[tuple[str, ...]]:
        if not word:
            yield ()
        for end in range(1, len(word) + 1):
            if word[:end] in scores:
                yield from ((word[:end], *rest) for rest in segmentations(word[end:]))

    weights = {one: np.exp(0.5 * sum(scores[part] for part in one)) for one in segmentations("\u2581abc")}
    rows = known.encode(["abc"] * 64)
    drawn = Counter(
        tuple(processor.id_to_piece(index) for index in row)
        for seed in range(80)
        for row in Subwords(known.model, 0.5).redraw(rows, (seed,))
    )
    assert len(weights) > 2
    for one, weight in weights.items():
        assert drawn[one] / drawn.total() == pytest.approx(weight / sum(weights.values()), abs=0.03)


@pytest.mark.parametrize("prepared", [False, True])
def test_run_with_sampled_subwords_continues_to_the_bit(tmp_path: Path, prepared: bool) -> None:
    write_tiny(
        tmp_path, ("train:\n", "train:\n  tokenizer: {sampling: 0.2}\n"), ("average: 2", "average: 1"), ("60", "50")
    )
    spec, data = load_spec(tmp_path / "tiny.yaml"), tmp_path / "data"
    if prepared:
        data, files = tmp_path / "prepared", find_pairs(data)
        prepare(spec, Preparation([Corpus("one", files.train)], files.valid), data)
    for run, options in (("whole", Options()), ("part", Options(minutes=1e-9)), ("part", Options(resume=True))):
        train_weights(spec, data, tmp_path / run, options, quiet=True)
    whole, part = (read_weights(tmp_path / run).arrays for run in ("whole", "part"))
    assert all((whole[name] == part[name]).all() for name in whole)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_placeholder_stays_one_token(kind: Kind) -> None:
    texts = ["see <url> for more of it", "more of it at <url> and <url>"] * 4
    known = train_vocabulary(texts, 20, kind=kind, of="source", symbols=["<url>"])
    for seed in range(20):
        rows = sampled(known, 0.5, (seed,)).encode(texts)
        assert [row.count(known.processor().piece_to_id("<url>")) for row in rows] == [1, 2] * 4


def test_prepared_texts_are_drawn_as_other_tokens_and_stay_the_same(tmp_path: Path) -> None:
    write_tiny(tmp_path, ("train:\n", "train:\n  tokenizer: {sampling: 0.3}\n"), ("vocabulary: 60", "vocabulary: 40"))
    spec, files = load_spec(tmp_path / "tiny.yaml"), find_pairs(tmp_path / "data")
    prepare(spec, Preparation([Corpus("one", files.train)], files.valid), tmp_path / "prepared")
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(tmp_path / "prepared", schema), schema)
    tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
    assert tokenizer is not None
    known = tokenizer.vocabularies["target"]

    def targets(redraw: Redraw, seed: int, epoch: int) -> list[list[int]]:
        ((_, found),) = encode_corpus(corpus, schema, tokenizer, redraw).train.windows(seed, epoch)
        column = found.targets["labels"]
        return [column.tensors("", [row], 99)[""][0].tolist()[:-1] for row in range(len(found))]  # pyright: ignore

    usual, first, other = targets(KEPT, 1, 0), *(targets(redraw_of(spec, schema), 1, epoch) for epoch in (0, 1))
    assert first == targets(redraw_of(spec, schema), 1, 0) != other
    assert len(first) == len(usual) and sum(map(len, first)) > sum(map(len, usual))
    assert known.decode(first) == known.decode(usual) == known.decode(other)
