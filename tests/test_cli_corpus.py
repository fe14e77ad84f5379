from collections import Counter
from pathlib import Path

from command_line import CommandLine

from xformc.trainer.data.number_words import choose_numbers


def test_corpus_numbers_of_five_digits_are_not_rare() -> None:
    chosen = choose_numbers(40_000, 500, 1_000, seed=1)
    digits = Counter(len(str(number)) for number in chosen["train"])
    assert digits[3] == 899 and digits[4] > 4_000 and digits[5] > 7_500 and digits[6] > 20_000
    assert Counter(len(str(number)) for number in chosen["test"]) == {3: 1, 4: 6, 5: 91, 6: 902}
    everything = choose_numbers(999_000, 500, 500, seed=1)
    assert len(set().union(*map(set, everything.values()))) == 1_000_000


def test_corpus_numbers_are_disjoint_and_repeatable(xformc: CommandLine, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        result = xformc(
            "corpus", "numbers", "-o", tmp_path / folder, "--train", "1500", "--valid", "20", "--test", "30"
        )
        assert (result.code, result.err) == (0, "")
    texts = {path.name: path.read_text() for path in (tmp_path / "one").iterdir()}
    assert texts == {path.name: path.read_text() for path in (tmp_path / "two").iterdir()}
    sets = [set(texts[f"{split}.tsv"].splitlines()) for split in ("train", "valid", "test")]
    assert [len(lines) for lines in sets] == [1500, 20, 30]
    assert len(set.union(*sets)) == 1550
    assert "forty-two\tzweiundvierzig" in sets[0]
    pairs = zip(texts["test.en"].splitlines(), texts["test.de"].splitlines(), strict=True)
    assert [f"{english}\t{german}" for english, german in pairs] == texts["test.tsv"].splitlines()
