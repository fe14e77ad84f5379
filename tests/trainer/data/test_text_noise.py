"""Noise in sources: the same in the same epoch, of texts in memory and of prepared data."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from several_processes import write_tiny
from tiny_run import write_spec

from xformc.compiler.spec import load_spec
from xformc.compiler.spec.problems import SpecError
from xformc.compiler.spec.sections import Noise
from xformc.compiler.weight_files import read_weights
from xformc.format.tokens import BEGIN, END, UNKNOWN
from xformc.trainer.data.batches import Examples
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, make_tokenizer, read_corpus
from xformc.trainer.data.redrawn_texts import Redraw, redraw_of
from xformc.trainer.data.shards.blocks import Rows
from xformc.trainer.data.shards.manifest import Stored
from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
from xformc.trainer.data.shards.redrawn_rows import RedrawnRows
from xformc.trainer.data.splits import find_pairs
from xformc.trainer.data.text_noise import TextNoise
from xformc.trainer.data.vocabulary import train_vocabulary
from xformc.trainer.train import Options, train_weights

TEXT = "Ein Hund <BT> läuft über 24 schöne Wiesen"


def test_noise_is_of_the_rates_and_keeps_words_and_tags() -> None:
    typing, found = TextNoise(Noise(typing=0.1), 1, 0, 0), Counter[int]()
    for text in typing.lines([TEXT] * 500):
        words = text.split(" ")
        assert (len(words), words[2], words[5]) == (8, "<BT>", "24") and all(words)
        found[len(text) - len(TEXT)] += 1
    changed = sum(text != TEXT for text in TextNoise(Noise(typing=0.01), 1, 0, 0).lines([TEXT] * 5000))
    assert changed / 5000 == pytest.approx(1 - 0.99**28, abs=0.012)
    assert found[-1] > 50 and found[1] > 50, "letters are left out and doubled"
    cases = Counter(TextNoise(Noise(case=0.3), 1, 0, 0).lines([TEXT] * 500))
    assert len(cases) == 4 and cases[TEXT] == pytest.approx(350, abs=40)
    assert "EIN HUND <BT> LÄUFT ÜBER 24 SCHÖNE WIESEN" in cases


def test_noise_follows_from_seed_epoch_and_line() -> None:
    def drawn(*key: int) -> str:
        return TextNoise(Noise(typing=0.2), *key[:3]).line(key[3], TEXT)

    keys = [(1, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1)]
    assert len({drawn(*key) for key in keys}) == len(keys)
    assert drawn(1, 0, 0, 0) == drawn(1, 0, 0, 0)


def test_prepared_sources_have_the_noise_of_texts(tmp_path: Path) -> None:
    """Runs continue to the bit, and targets have none."""
    change = ("train:\n", "train:\n  noise: {typing: 0.2, case: 0.2}\n  tokenizer: {kind: char}\n")
    write_tiny(tmp_path, change, ("vocabulary: 60", "vocabulary: 26"), ("average: 2", "average: 1"))
    spec, files = load_spec(tmp_path / "tiny.yaml"), find_pairs(tmp_path / "data")
    prepare(spec, Preparation([Corpus("one", files.train)], files.valid), tmp_path / "prepared")
    schema = data_schema(spec)

    def epoch(folder: str, number: int) -> Examples:
        corpus = read_corpus(find_corpus(tmp_path / folder, schema), schema)
        tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
        ((_, examples),) = encode_corpus(corpus, schema, tokenizer, redraw_of(spec, schema)).train.windows(1, number)
        return examples

    def rows(examples: Examples, name: str) -> list[list[int]]:
        column = examples.inputs[name]
        return [column.tensors(name, [row], 99)[name][0].tolist() for row in range(len(examples))]  # pyright: ignore

    first, again, prepared = epoch("data", 0), epoch("data", 1), epoch("prepared", 0)
    assert rows(first, "source") == rows(prepared, "source") != rows(again, "source")
    assert rows(first, "target") == rows(prepared, "target") == rows(again, "target")
    for run, data, options in (
        ("whole", "data", Options()),
        ("part", "prepared", Options(minutes=1e-9)),
        ("part", "prepared", Options(resume=True)),
    ):
        train_weights(spec, tmp_path / data, tmp_path / run, options, quiet=True)
    whole, part = (read_weights(tmp_path / run).arrays for run in ("whole", "part"))
    assert all((whole[name] == part[name]).all() for name in whole)


def test_prepared_row_with_an_unknown_token_keeps_its_ids() -> None:
    known = train_vocabulary(["red dog", "blue cat"], 30, kind="char", of="source")
    texts = ["red dog", "red 7", "blue cat"]
    rows = [(ids, [BEGIN, *ids]) for ids in ([*known.encode([text])[0], END] for text in texts)]
    lengths = np.array([[len(ids) for ids in row] for row in rows])
    given = Rows(np.concatenate([np.array(ids, np.uint16) for row in rows for ids in row]), lengths)
    redraw = Redraw(None, Noise(typing=0.9), ("source",))
    columns = {"source": Stored((), (END,), 30, ""), "target": Stored((BEGIN,), (END,), 30, "")}
    found = RedrawnRows(redraw, columns, dict.fromkeys(columns, known))(given, np.arange(3), 1, 0)
    ends = np.cumsum(found.lengths)
    ids = [part.tolist() for part in np.split(found.ids, ends)[:-1]]
    wanted = TextNoise(Noise(typing=0.9), 1, 0, 0).lines(texts)
    assert ids[::2] == [[*known.encode([text])[0], END] for text in (wanted[0], texts[1], wanted[2])]
    assert ids[1::2] == [target for _, target in rows]
    assert wanted[1] != texts[1] and UNKNOWN in ids[2]


def test_noise_without_a_text_that_is_read_is_an_error(tmp_path: Path) -> None:
    for base, noise, message in (
        ("gpt", "{typing: 0.1}", "noise changes texts that are read and not written, and this model has none"),
        ("transformer_base", "{}", "needs case or typing"),
        ("masked_language_model", "{typing: 0.1}", "an objective has noise of its own"),
    ):
        with pytest.raises(SpecError, match=message):
            load_spec(write_spec(tmp_path, f"extends: {base}\ntrain: {{noise: {noise}}}\n"))
