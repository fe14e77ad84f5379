import gzip
from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.trainer.corpus import CorpusFiles, ParallelFiles, find_corpus, read_lines, read_pairs


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def test_find_corpus_takes_tsv_and_gz(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="a\tb\n", val__tsv__gz="c\td\n", test__tsv="e\tf\n")
    files = find_corpus(tmp_path)
    assert files == CorpusFiles(ParallelFiles(tmp_path / "train.tsv"), ParallelFiles(tmp_path / "val.tsv.gz"))
    assert read_pairs(files.valid).targets == ("d",)


def test_find_corpus_reads_languages_from_the_last_suffix(tmp_path: Path) -> None:
    write(tmp_path, train__lc__tok__en__gz="a", train__lc__tok__de__gz="b", train__fr="c", val__en="d", val__de="e")
    files = find_corpus(tmp_path, "de-en")
    assert files.train == ParallelFiles(tmp_path / "train.lc.tok.de.gz", tmp_path / "train.lc.tok.en.gz")
    assert files.valid == ParallelFiles(tmp_path / "val.de", tmp_path / "val.en")


def test_find_corpus_knows_source_and_target(tmp_path: Path) -> None:
    write(tmp_path, train__source="a", train__target="b", valid__src="c", valid__tgt="d")
    assert find_corpus(tmp_path).valid == ParallelFiles(tmp_path / "valid.src", tmp_path / "valid.tgt")


@pytest.mark.parametrize(
    ("names", "languages", "message", "hint"),
    [
        (["train__en", "train__de"], None, "cannot tell which language is the source", "--languages de-en or"),
        (["train__en"], None, "train.en is alone", "put its translation beside it"),
        (["train__en", "valid__en"], "en-de", "no file train.*de; there are: train.en", "train.tsv"),
        ([], None, "no file train.*source and no file train.*target", "train.tsv"),
        (["train__tsv"], None, "no file valid.*source", "valid.tsv"),
        (["train__a__en", "train__b__en"], "en-de", "could both be the en side", "keep one"),
        (["train__tsv", "valid__tsv"], "en-de", "has nothing to choose", "leave --languages out"),
        (["train__tsv", "valid__tsv"], "en", "two different names are required", "en-de"),
        (["train__tsv", "valid__tsv"], "en-en", "two different names are required", "en-de"),
    ],
)
def test_find_corpus_says_what_is_missing(
    tmp_path: Path, names: list[str], languages: str | None, message: str, hint: str
) -> None:
    write(tmp_path, **dict.fromkeys(names, "a\tb\n"))
    with pytest.raises(UserError) as caught:
        find_corpus(tmp_path, languages)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_find_corpus_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        find_corpus(tmp_path / "absent")


def test_read_pairs_drops_and_counts_empty_sides(tmp_path: Path) -> None:
    write(tmp_path, a="one\r\n\n  two \nthree\n", b="eins\nx\n  zwei\n\t\n")
    pairs = read_pairs(ParallelFiles(tmp_path / "a", tmp_path / "b"))
    assert (pairs.sources, pairs.targets, pairs.empty) == (("one", "two"), ("eins", "zwei"), 2)


def test_read_pairs_hashes_the_text_and_not_its_form(tmp_path: Path) -> None:
    write(tmp_path, a="one\ntwo\n", b="eins\nzwei\n", c__tsv__gz="one\teins\ntwo\tzwei", d__tsv="one\teins\n")
    both = read_pairs(ParallelFiles(tmp_path / "a", tmp_path / "b"))
    tsv = read_pairs(ParallelFiles(tmp_path / "c.tsv.gz"))
    assert both == tsv
    assert read_pairs(ParallelFiles(tmp_path / "d.tsv")).sha256 != both.sha256


def test_read_pairs_ends_lines_at_line_feeds_only(tmp_path: Path) -> None:
    write(tmp_path, a="\ufeffone\u2028two\x0bthree\n", b="eins\n")
    assert read_pairs(ParallelFiles(tmp_path / "a", tmp_path / "b")).sources == ("one\u2028two\x0bthree",)


@pytest.mark.parametrize(("first", "second", "counts"), [("a\nb\nc\n", "x\n", (3, 1)), ("a\n", "x\ny", (1, 2))])
def test_read_pairs_refuses_unequal_line_counts(
    tmp_path: Path, first: str, second: str, counts: tuple[int, int]
) -> None:
    write(tmp_path, a=first, b=second)
    with pytest.raises(UserError) as caught:
        read_pairs(ParallelFiles(tmp_path / "a", tmp_path / "b"))
    assert caught.value.message == f"has {counts[0]} lines and {tmp_path / 'b'} has {counts[1]}"
    assert caught.value.place == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "content", "place", "message"),
    [
        ("a.tsv", b"a\tb\nc\xff\td\n", "a.tsv:2", "not UTF-8: byte 0xff at byte column 2"),
        ("a.tsv", b"a\tb\nc\0\td\n", "a.tsv:2", "NUL byte at column 2"),
        ("a.tsv", b"a\tb\nc d\n", "a.tsv:2", "1 column, where 2 are required"),
        ("a.tsv", b"a\tb\tc\n", "a.tsv:1", "3 columns, where 2 are required"),
        ("a.tsv", b"\n \t \n", "a.tsv", "holds no pair of sentences"),
        ("a.tsv.gz", b"plain text", "a.tsv.gz", "not a whole gzip file"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 1000)[:-12], "a.tsv.gz", "not a whole gzip file"),
    ],
)
def test_read_pairs_names_the_place_of_bad_text(
    tmp_path: Path, name: str, content: bytes, place: str, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_pairs(ParallelFiles(tmp_path / name))
    assert caught.value.place == str(tmp_path / place)
    assert message in caught.value.message


def test_read_lines_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file") as caught:
        list(read_lines(tmp_path / "absent"))
    assert caught.value.place == str(tmp_path / "absent")
