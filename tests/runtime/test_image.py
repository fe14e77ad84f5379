"""Images as inputs: their pixels, sizes and channels, and files that cannot be read."""

import io
import random
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.media import image as images
from xformc.runtime.media.reader import read_file, suffixes_of

pillow: Any = pytest.importorskip("PIL.Image", reason="reading images takes Pillow")


def taken(height: int, width: int, channels: int | None = None) -> Input:
    axes = {"height": height, "width": width}
    return Input("values", axes=axes if channels is None else {**axes, "channels": channels})


def save(path: Path, pixels: Any, mode: str | None = None, **form: Any) -> Path:
    made = pillow.fromarray(np.asarray(pixels)) if mode is None else pillow.fromarray(np.asarray(pixels)).convert(mode)
    made.save(path, **form)
    return path


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_image_of_the_right_size_is_its_pixels(tmp_path: Path, channels: int | None) -> None:
    shape = (4, 6) if channels in (None, 1) else (4, 6, channels or 0)
    found = read_file(save(tmp_path / "a.png", pixels(*shape)), "image", taken(4, 6, channels))
    assert found.dtype == np.float32 and found.shape == (4, 6) if channels is None else (4, 6, channels)
    np.testing.assert_array_equal(found.reshape(shape), pixels(*shape).astype(np.float32) / 255)


def test_images_are_resized_without_their_proportions(tmp_path: Path) -> None:
    wide = np.repeat(np.array([[0, 255]], np.uint8), 10, axis=1).repeat(5, axis=0)
    found = read_file(save(tmp_path / "a.PNG", wide), "image", taken(8, 4))
    assert found.shape == (8, 4) and found[:, 0].max() == 0 and found[:, -1].min() == 1


def test_channels_become_those_of_the_input(tmp_path: Path) -> None:
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 255
    path = save(tmp_path / "red.png", red)
    assert read_file(path, "image", taken(2, 2, 4))[0, 0].tolist() == [1, 0, 0, 1]
    assert read_file(path, "image", taken(2, 2))[0, 0] == pytest.approx(0.299, abs=0.01)
    gray = save(tmp_path / "gray.png", np.full((2, 2), 51, np.uint8))
    assert read_file(gray, "image", taken(2, 2, 3))[0, 0].tolist() == pytest.approx([0.2] * 3)
    deep = save(tmp_path / "deep.png", np.full((2, 2), 51 * 257, np.uint16))
    assert read_file(deep, "image", taken(2, 2)).tolist() == pytest.approx(np.full((2, 2), 0.2))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    clear = np.zeros((2, 2, 4), np.uint8)
    path = save(tmp_path / "clear.png", clear)
    assert read_file(path, "image", taken(2, 2, 3)).min() == 1
    assert read_file(path, "image", taken(2, 2, 4)).max() == 0


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3)])  # gray, and colours, of PNG
@pytest.mark.parametrize("bits", [8, 16])
def test_one_colour_may_be_transparent(tmp_path: Path, kind: int, channels: int, bits: int) -> None:
    size, clear, other = bits // 8, bytes([0x12, 0x34]), bytes([0x40, 0x34])
    pixel = clear[:size] * channels + other[:size] * channels
    key = clear if bits == 16 else b"\0" + clear[:1]
    form = (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes([bits, kind, 0, 0, 0])
    parts = {b"IHDR": form, b"tRNS": key * channels, b"IDAT": zlib.compress(b"\0" + pixel), b"IEND": b""}
    chunks = [
        len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
        for name, content in parts.items()
    ]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    gray = read_file(tmp_path / "a.png", "image", taken(1, 2))
    assert gray.tolist() == [[1, pytest.approx(0x40 / 255)]]
    assert read_file(tmp_path / "a.png", "image", taken(1, 2, 4))[0, :, 3].tolist() == [0, 1]


def test_a_photo_is_turned_as_its_camera_was(tmp_path: Path) -> None:
    turned = pillow.Exif()
    turned[0x0112] = 3  # upside down
    half = np.zeros((16, 16), np.uint8)
    half[:8] = 255
    path = save(tmp_path / "a.jpg", half, exif=turned)
    found = read_file(path, "image", taken(16, 16))
    assert found[:6].max() < 0.1 and found[10:].min() > 0.9


def test_only_values_of_a_plane_are_images() -> None:
    assert suffixes_of(taken(2, 2)) == suffixes_of(taken(2, 2, 3)) == (".png", ".jpg", ".jpeg")
    assert suffixes_of(taken(2, 2, 5)) == suffixes_of(Input("values", axes={"size": 3})) == ()


def png(width: int, height: int) -> bytes:
    """A small file that claims this size."""
    kept = io.BytesIO()
    pillow.fromarray(np.zeros((1, 1), np.uint8)).save(kept, "png")
    data = bytearray(kept.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an image that can be read: it is neither PNG nor JPEG"),
        (b"GIF89a" + bytes(20), "not an image that can be read: it is neither PNG nor JPEG"),
        (png(10, 10)[:60], "not an image that can be read: "),
        (png(8_193, 8_192), "more than 67,108,864 pixels"),
        (png(12_000, 12_000), "more than 67,108,864 pixels"),
        (png(100_000, 100_000), "more than 67,108,864 pixels"),
    ],
)
def test_damaged_and_huge_images_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_file(tmp_path / "a.png", "image", taken(2, 2))
    assert caught.value.message.startswith(message) and caught.value.place == str(tmp_path / "a.png")


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_BYTES", 10)
    with pytest.raises(UserError, match="larger than 10 bytes"):
        read_file(save(tmp_path / "a.png", pixels(2, 2)), "image", taken(2, 2))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_hostile_images_end_in_one_error(tmp_path: Path, suffix: str) -> None:
    whole, source = save(tmp_path / f"a.{suffix}", pixels(8, 8, 3)).read_bytes(), random.Random(1)
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(source.randint(1, 6)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        path = tmp_path / f"b.{suffix}"
        path.write_bytes(changed[: source.randint(1, len(changed))] if source.random() < 0.3 else changed)
        try:
            found = read_file(path, "image", taken(4, 4, 3))
        except UserError as error:
            assert error.place == str(path)
        else:
            assert found.shape == (4, 4, 3) and found.min() >= 0 and found.max() <= 1


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.png", pixels(2, 2))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match="reading an image needs the package pillow") as caught:
        read_file(path, "image", taken(2, 2))
    assert caught.value.hint == "pip install 'xformc[images]', or give arrays"
