import gzip
import io
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from xformc.errors import UserError
from xformc.runtime.text.lines import LINE_BYTES, read_lines, read_text_file


def lines(data: bytes) -> list[str]:
    return list(read_lines(io.BytesIO(data), "<stdin>"))


def test_read_lines_ends_lines_at_line_feeds_only() -> None:
    assert lines(b"a\r\n\n b \xe2\x80\xa8c\x0bd\rend") == ["a", "", " b \u2028c\x0bd\rend"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"))))
def test_read_lines_gives_back_what_was_written(texts: list[str]) -> None:
    assert lines("".join(f"{text}\n" for text in texts).encode()) == texts


def test_read_lines_names_the_line_that_is_not_utf8() -> None:
    with pytest.raises(UserError) as caught:
        lines(b"good\nwor\xffse\n")
    assert str(caught.value).startswith("<stdin>:2: not UTF-8: byte 0xff at byte column 4")


def test_read_lines_drops_the_byte_order_mark_of_the_first_line() -> None:
    assert lines(b"\xef\xbb\xbfa\n\xef\xbb\xbfb") == ["a", "\ufeffb"]


def test_read_lines_names_the_line_with_a_nul_byte() -> None:
    with pytest.raises(UserError, match="<stdin>:2: NUL byte at byte column 3"):
        lines(b"good\nwo\0rse\n")


def test_read_lines_refuses_a_line_without_end() -> None:
    assert len(lines(b"x" * LINE_BYTES)[0]) == LINE_BYTES
    with pytest.raises(UserError, match="<stdin>:1: the line is longer than 1,048,576 bytes"):
        lines(b"x" * (LINE_BYTES + 1))


def test_read_text_file_unpacks_gz(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"a\nb\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_text_file(tmp_path / "plain") == read_text_file(tmp_path / "packed.gz") == ["a", "b"]


@given(st.lists(st.binary(max_size=3000), max_size=4))
def test_read_text_file_unpacks_zst_of_several_frames(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("zst")
    lines = [part.hex() for part in parts]
    frames = [zstandard.compress(f"{line}\n".encode() * 50) for line in lines]
    (folder / "packed.zst").write_bytes(b"".join(frames))
    assert read_text_file(folder / "packed.zst") == [line for line in lines for _ in range(50)]


@pytest.mark.parametrize("content", [b"plain text", zstandard.compress(b"a\nb\n" * 1000)[:-3], b"\x28\xb5\x2f\xfd" * 9])
def test_read_text_file_refuses_broken_zst(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.zst"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a complete zstd file") as caught:
        read_text_file(path)
    assert caught.value.hint == "copy it again; if it is plain text, remove .zst from its name"


def test_a_small_zst_file_of_a_long_line_is_refused_early(tmp_path: Path) -> None:
    (tmp_path / "long.zst").write_bytes(zstandard.compress(b"x" * (1 << 28)))
    with pytest.raises(UserError, match="the line is longer than"):
        read_text_file(tmp_path / "long.zst")


def test_read_text_file_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file") as caught:
        read_text_file(tmp_path / "absent")
    assert caught.value.place == str(tmp_path / "absent")


@pytest.mark.parametrize(
    "content", [b"plain text", gzip.compress(b"a\nb\n" * 100, mtime=0)[:-9], b"\x1f\x8b\x08" + b"\0" * 20]
)
def test_read_text_file_refuses_broken_gz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a complete gzip file"):
        read_text_file(path)
