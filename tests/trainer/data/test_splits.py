import gzip
from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.trainer.data.splits import CorpusFiles, find_files, find_pairs
from xformc.trainer.data.text_files import read_texts

PAIR = ("source", "target")


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def test_find_pairs_takes_tsv_and_gz(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="a\tb\n", val__tsv__gz="c\td\n", test__tsv="e\tf\n")
    files = find_pairs(tmp_path)
    assert files == CorpusFiles((tmp_path / "train.tsv",), (tmp_path / "val.tsv.gz",))
    assert read_texts(files.valid, PAIR).columns["target"] == ["d"]


def test_find_pairs_reads_languages_from_the_last_suffix(tmp_path: Path) -> None:
    write(tmp_path, train__lc__tok__en__gz="a", train__lc__tok__de__gz="b", train__fr="c", val__en="d", val__de="e")
    files = find_pairs(tmp_path, "de-en")
    assert files.train == (tmp_path / "train.lc.tok.de.gz", tmp_path / "train.lc.tok.en.gz")
    assert files.valid == (tmp_path / "val.de", tmp_path / "val.en")


def test_find_pairs_knows_source_and_target(tmp_path: Path) -> None:
    write(tmp_path, train__source="a", train__target="b", valid__src="c", valid__tgt="d")
    assert find_pairs(tmp_path).valid == (tmp_path / "valid.src", tmp_path / "valid.tgt")


@pytest.mark.parametrize(
    ("names", "languages", "message", "hint"),
    [
        (["train__en", "train__de"], None, "cannot tell which language is the source", "--languages de-en or"),
        (["train__en"], None, "only one side, train.en", "put its translation beside it"),
        (["train__en", "valid__en"], "en-de", "no file train.*de; there are: train.en", "train.tsv"),
        ([], None, "no file train.*source and no file train.*target", "train.tsv"),
        (["train__tsv"], None, "no file valid.*source", "valid.tsv"),
        (["train__a__en", "train__b__en"], "en-de", "could both be the en side", "keep one"),
        (["train__tsv", "valid__tsv"], "en-de", "has no effect", "leave --languages out"),
        (["train__tsv", "valid__tsv"], "en", "must be two different names", "en-de"),
        (["train__tsv", "valid__tsv"], "en-en", "must be two different names", "en-de"),
    ],
)
def test_find_pairs_says_what_is_missing(
    tmp_path: Path, names: list[str], languages: str | None, message: str, hint: str
) -> None:
    write(tmp_path, **dict.fromkeys(names, "a\tb\n"))
    with pytest.raises(UserError) as caught:
        find_pairs(tmp_path, languages)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_find_pairs_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        find_pairs(tmp_path / "absent")


def test_find_files_takes_the_kind_that_is_there(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="a\tb\n", dev__tsv__gz="a\tb\n", test__npz="")
    assert find_files(tmp_path, ("tsv", "npz")) == CorpusFiles((tmp_path / "train.tsv",), (tmp_path / "dev.tsv.gz",))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no file train.tsv or train.npz"),
        (["train__txt"], "no file train.tsv or train.npz; there are: train.txt"),
        (["train__tsv", "train__npz"], "train.tsv and train.npz could both be the data"),
        (["train__tsv"], "no file valid.tsv or valid.npz"),
        (["train__tsv", "valid__npz"], "train.tsv and valid.npz differ in format"),
    ],
)
def test_find_files_says_what_is_missing(tmp_path: Path, names: list[str], message: str) -> None:
    write(tmp_path, **dict.fromkeys(names, "a\tb\n"))
    with pytest.raises(UserError) as caught:
        find_files(tmp_path, ("tsv", "npz"))
    assert caught.value.message == message
    with pytest.raises(UserError, match="not a folder"):
        find_files(tmp_path / "absent", ("tsv",))
