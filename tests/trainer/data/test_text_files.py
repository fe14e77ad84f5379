import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from xformc.errors import UserError
from xformc.trainer.data.text_files import read_texts

PAIR = ("source", "target")


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def test_read_texts_drops_and_counts_empty_sides(tmp_path: Path) -> None:
    write(tmp_path, a="one\r\n\n  two \nthree\n", b="eins\nx\n  zwei\n\t\n")
    pairs = read_texts((tmp_path / "a", tmp_path / "b"), PAIR)
    assert pairs.columns == {"source": ["one", "two"], "target": ["eins", "zwei"]}
    assert (pairs.lines, pairs.empty, len(pairs)) == ([1, 3], 2, 2)


def test_read_texts_hashes_the_text_and_not_its_form(tmp_path: Path) -> None:
    write(tmp_path, a="one\ntwo\n", b="eins\nzwei\n", c__tsv__gz="one\teins\ntwo\tzwei", d__tsv="one\teins\n")
    both = read_texts((tmp_path / "a", tmp_path / "b"), PAIR)
    tsv = read_texts((tmp_path / "c.tsv.gz",), PAIR)
    assert (both.columns, both.sha256) == (tsv.columns, tsv.sha256)
    assert read_texts((tmp_path / "d.tsv",), PAIR).sha256 != both.sha256


def test_read_texts_ends_lines_at_line_feeds_only(tmp_path: Path) -> None:
    write(tmp_path, a="\ufeffone\u2028two\x0bthree\n", b="eins\n")
    assert read_texts((tmp_path / "a", tmp_path / "b"), PAIR).columns["source"] == ["one\u2028two\x0bthree"]


def test_read_texts_of_one_column_takes_whole_lines(tmp_path: Path) -> None:
    write(tmp_path, a="one\ttwo\n\nthree\n")
    texts = read_texts((tmp_path / "a",), ["text"])
    assert (texts.columns, texts.lines) == ({"text": ["one\ttwo", "three"]}, [1, 3])


@pytest.mark.parametrize(("first", "second", "counts"), [("a\nb\nc\n", "x\n", (3, 1)), ("a\n", "x\ny", (1, 2))])
def test_read_texts_refuses_unequal_line_counts(
    tmp_path: Path, first: str, second: str, counts: tuple[int, int]
) -> None:
    write(tmp_path, a=first, b=second)
    with pytest.raises(UserError) as caught:
        read_texts((tmp_path / "a", tmp_path / "b"), PAIR)
    assert caught.value.message == f"has {counts[0]} lines, but {tmp_path / 'b'} has {counts[1]}"
    assert caught.value.place == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "content", "place", "message"),
    [
        ("a.tsv", b"a\tb\nc\xff\td\n", "a.tsv:2", "not UTF-8: byte 0xff at byte column 2"),
        ("a.tsv", b"a\tb\nc\0\td\n", "a.tsv:2", "NUL byte at byte column 2"),
        ("a.tsv", b"a\tb\nc d\n", "a.tsv:2", "1 column; 2 are required"),
        ("a.tsv", b"a\tb\tc\n", "a.tsv:1", "3 columns; 2 are required"),
        ("a.tsv", b"\n \t \n", "a.tsv", "has no line with source and target"),
        ("a.tsv.gz", b"plain text", "a.tsv.gz", "not a complete gzip file"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 1000, mtime=0)[:-12], "a.tsv.gz", "not a complete gzip file"),
    ],
)
def test_read_texts_names_the_place_of_bad_text(
    tmp_path: Path, name: str, content: bytes, place: str, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_texts((tmp_path / name,), PAIR)
    assert caught.value.place == str(tmp_path / place)
    assert message in caught.value.message


def test_read_texts_reads_columns_of_parquet(tmp_path: Path) -> None:
    write(tmp_path, c__tsv="one\teins\ntwo words\tzwei\n")
    path = tmp_path / "train.parquet"
    table = {"score": [1.0, 2.0, 3.0], "target": ["eins", "leer", " zwei"], "source": ["one", None, "two\nwords"]}
    parquet.write_table(pa.table(table), path)
    texts, tsv = read_texts((path,), PAIR), read_texts((tmp_path / "c.tsv",), PAIR)
    assert (texts.columns, texts.sha256, texts.lines, texts.empty) == (tsv.columns, tsv.sha256, [1, 3], 1)


def test_read_texts_names_what_a_parquet_file_lacks(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    parquet.write_table(pa.table({"source": ["one"], "target": [1]}), path)
    with pytest.raises(UserError, match=r"no column of text target; there are: source \(string\), target \(int64\)"):
        read_texts((path,), PAIR)
    parquet.write_table(pa.table({"source": ["one", "a\0b"], "target": ["eins", "b"]}), path)
    with pytest.raises(UserError, match="NUL byte") as caught:
        read_texts((path,), PAIR)
    assert caught.value.place == f"{path}: row 2"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="not a Parquet file that can be read"):
        read_texts((path,), PAIR)


def test_read_texts_reads_objects_of_json(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(
        '{"target": "ein\\nHund ", "source": "a dog", "id": 1}\n\n{"source": "", "target": "x"}\n'
        '{"source": null, "target": "x"}\n'
    )
    texts = read_texts((path,), ("source", "target"))
    assert texts.columns == {"source": ["a dog"], "target": ["ein Hund"]}
    assert (texts.lines, texts.empty) == ([1], 3)
    for line in ('{"source": "a"}', '{"source": "a", "target": 3}', "[1, 2]", "a\tb", "[" * 100_000):
        path.write_text(f'{{"source": "a", "target": "b"}}\n{line}\n')
        with pytest.raises(
            UserError, match=r'train\.jsonl:2: not a JSON object with the text of "source" and "target"'
        ):
            read_texts((path,), ("source", "target"))
    path.write_text('{"source": "a", "traget": "b"}\n')
    with pytest.raises(UserError) as caught:
        read_texts((path,), ("source", "target"))
    assert caught.value.hint == 'it has no text "target"; its keys are source, traget'
    for text, message in ((r"a \ud800", "not valid Unicode text"), (r"a \u0000", "a text with a NUL byte")):
        path.write_text(f'{{"source": "a", "target": "b"}}\n{{"source": "{text}", "target": "b"}}\n')
        with pytest.raises(UserError, match=rf"train\.jsonl:2: {message}"):
            read_texts((path,), ("source", "target"))
