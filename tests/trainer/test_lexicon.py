"""IBM Model 1 finds the translations of a toy language, and `xformc shortlist` makes lists of parallel text."""

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, listing, mistake
from small_specs import small_text

from tests import tiny_engine
from xformc.compiler.shortlist import Shortlist, padded, read_shortlist
from xformc.trainer import lexicon
from xformc.trainer.lexicon import Pair, coverage_of, translations


def toy_pairs(count: int) -> list[Pair]:
    """Sentences of 2 to 5 of 20 words, each translated by the word 30 above it, in another order, and the word 3, which
    comes from nowhere."""
    rng = np.random.default_rng(0)
    sources = [rng.choice(20, int(rng.integers(2, 6)), replace=False) for _ in range(count)]
    return [(source, np.append(rng.permutation(source + 30), 3)) for source in sources]


def test_translations_are_the_likeliest_words() -> None:
    found = translations(toy_pairs(400), 25, 60, 4)
    assert [row[0] for row in found[:20]] == [*range(30, 50)]
    assert [len(row) for row in found[20:]] == [0] * 5 and max(map(len, found)) <= 4


def test_counting_in_parts_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = toy_pairs(60)
    whole = translations(pairs, 25, 60, 4)
    monkeypatch.setattr(lexicon, "CELLS", 50)
    for row, part in zip(whole, translations(pairs, 25, 60, 4), strict=True):
        np.testing.assert_array_equal(row, part)


def test_expectation_maximization_is_that_of_the_formula() -> None:
    """Two sentences, whose first iterations are computed by hand: t(y|x) from 'a b' -> 'x y' and 'a' -> 'x'.

    All sources, and none, begin alike. In the first sentence each of the three gives 1/3 to both words, in the second
    each of the two 1/2 to x. So a has x 1/3 + 1/2 and y 1/3, b has 1/3 each, and none has what a has.
    """
    pairs = [(np.array([0, 1]), np.array([0, 1])), (np.array([0]), np.array([0]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon, "ITERATIONS", 1)
        patch.setattr(lexicon, "LEAST", 0.45)
        once = translations(pairs, 2, 2, 2)
        assert [row.tolist() for row in once] == [[0], [0, 1]]  # 5/7 and 2/7; 1/2 and 1/2
        patch.setattr(lexicon, "ITERATIONS", 2)
        # x: a and none have 5/7 each, b 1/2, of 27/14; y: 2/7 each, b 1/2, of 15/14. b: x 7/27, y 7/15.
        assert [row.tolist() for row in translations(pairs, 2, 2, 2)] == [[0], [1]]


def test_coverage_counts_tokens_and_their_lists() -> None:
    lists = Shortlist(np.array([3], np.int32), padded([np.array([5, 6], np.int32), np.zeros(0, np.int32)], 9))
    pairs = [(np.array([0, 1]), np.array([5, 3, 9])), (np.array([1]), np.array([5]))]
    found = coverage_of(lists, pairs, 12)
    assert (found.listed, found.tokens, found.mean) == (2, 4, 2.0)


@pytest.mark.processor
def test_the_command_makes_a_list_that_an_engine_is_built_with(xformc: CommandLine, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    run.mkdir()
    data.mkdir()
    size = tiny_engine.train_tokenizer(run / "tokenizer.model")
    sizes = f"{{layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: {size}}}"
    (run / "spec.yaml").write_text(f"extends: transformer_base\nsizes: {sizes}\n")
    lines = tiny_engine.SENTENCES * 5
    for split in ("train", "valid"):
        for language in ("en", "de"):
            (data / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    arguments = ("--data", data, "--languages", "en-de", "--common", "2", "--best", "3")
    result = xformc("shortlist", run, *arguments)
    assert result.code == 0 and "100.00% of its tokens are listed" in result.out
    found = read_shortlist(run / "shortlist.safetensors")
    assert found.likely.shape == (size, 4) and len(found.common) == 3 and 3 in found.common
    assert np.array_equal(found.likely[:, 0], np.arange(size)), "what both sides share is its own translation"
    fewer = xformc("shortlist", run, *arguments, "--pairs", "8", "-o", tmp_path / "fewer.safetensors")
    assert fewer.code == 0 and (tmp_path / "fewer.safetensors").is_file()
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    for path in data.iterdir():
        (nothing / path.name).write_text("\u200b\n")
    assert "the training text has no tokens" in mistake(xformc("shortlist", run, "--data", nothing, *arguments[2:]))
    built = xformc("build", run / "spec.yaml", "--target", "portable", "-o", tmp_path / "engine",
                   "--shortlist", run / "shortlist.safetensors")  # fmt: skip
    assert built.code == 0, built.err


def test_what_has_no_lists_is_refused(xformc: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    data = ("--data", tmp_path, "--languages", "en-de")
    assert "not a run: it has no spec.yaml" in mistake(xformc("shortlist", run, *data))
    assert "no such folder" in mistake(xformc("shortlist", run / "none", *data))
    (run / "spec.yaml").write_text("extends: gpt\nsizes: {layers: 1, d_model: 16, heads: 2, vocabulary: 40}\n")
    assert "a shortlist is for models that translate one text" in mistake(xformc("shortlist", run, *data))
    (run / "spec.yaml").write_text(small_text("transformer_base"))
    assert "tokenizer.model" in mistake(xformc("shortlist", run, *data))
    assert "is no file" in mistake(xformc("shortlist", run, *data, "-o", tmp_path))
    assert listing(tmp_path) == ["run", "run/spec.yaml"]
