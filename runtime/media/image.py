"""Images: .png and .jpg files, read by Pillow, as values along the axes height, width and perhaps channels."""

import struct
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.media.reader import FileReader, register
from xformc.runtime.rows import Array

MOST_PIXELS = 1 << 26
"""The maximum number of pixels of a file; it is checked before any is decoded."""
MOST_BYTES = 1 << 28
"""The maximum size of a file."""
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's name of an image with this number of channels."""


class Image(FileReader):
    """Numbers from 0 to 1. An image of another size is resized, without keeping its proportions.

    Gray for 1 channel or no axis of channels, colours for 3, colours and opacity for 4. Otherwise what is transparent
    is white. The orientation that a camera recorded is respected.
    """

    suffixes = (".png", ".jpg", ".jpeg")

    def reads(self, item: Input) -> bool:
        """See `FileReader`."""
        return item.kind == "values" and (len(item.axes) == 2 or (len(item.axes) == 3 and _channels(item) in MODES))

    def read(self, path: Path, item: Input) -> Array:
        """Return the pixels [height, width] or [height, width, channels]."""
        height, width, *_ = sizes = tuple(item.axes.values())
        return read_image(path, height, width, MODES[_channels(item)]).reshape(sizes)


def read_image(path: Path, height: int, width: int, mode: str) -> NDArray[np.float32]:
    """Return the pixels of an image, resized, from 0 to 1; `mode` is Pillow's.

    Raises: OSError; UserError for a file that is damaged or too large, or without Pillow.
    """
    try:
        from PIL import Image as pillow  # noqa: PLC0415 (an extra)
        from PIL import ImageOps  # noqa: PLC0415
    except ModuleNotFoundError as error:
        hint = "pip install 'xformc[images]', or give arrays"
        raise UserError("reading an image needs the package pillow", place=str(path), hint=hint) from error
    with path.open("rb") as handle:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"larger than {MOST_BYTES:,} bytes", place=str(path), hint=_SMALLER)
        try:
            opened: Any = pillow.open(handle, formats=("PNG", "JPEG"))
            if opened.width * opened.height <= MOST_PIXELS:
                _shorten_key(opened)
                image = _as_mode(ImageOps.exif_transpose(opened), mode, pillow)
                resized = image.resize((width, height), pillow.Resampling.BILINEAR)
                return np.asarray(resized, np.float32) / np.float32(255)
        except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
            raise UserError(_TOO_LARGE, place=str(path), hint=_SMALLER) from error
        except pillow.UnidentifiedImageError as error:
            raise UserError("not an image that can be read: it is neither PNG nor JPEG", place=str(path)) from error
        except _BROKEN as error:
            raise UserError(f"not an image that can be read: {error}", place=str(path)) from error
    raise UserError(_TOO_LARGE, place=str(path), hint=_SMALLER)


def _as_mode(image: Any, mode: str, pillow: Any) -> Any:
    """The image in this mode, of 8 bits for each channel."""
    if image.mode.startswith("I"):  # gray of 16 bits, which `convert` would clip
        deep, key = np.asarray(image), image.info.get("transparency")
        image = pillow.fromarray((deep >> 8).astype(np.uint8))
        if isinstance(key, int):
            image.putalpha(pillow.fromarray(np.where(deep == key, 0, 255).astype(np.uint8)))
    if mode != "RGBA" and image.has_transparency_data:
        opaque = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", opaque.size, "white"), opaque)
    return image.convert(mode)


def _shorten_key(image: Any) -> None:
    """Give colours of 16 bits, of which Pillow reads the upper 8, a transparent colour of 8 bits, too."""
    key = image.info.get("transparency")
    if isinstance(key, tuple) and any(str(tile[3]).endswith("16B") for tile in image.tile):
        image.info["transparency"] = tuple(one >> 8 for one in cast(tuple[int, ...], key))


def _channels(item: Input) -> int:
    return 1 if len(item.axes) == 2 else list(item.axes.values())[2]


_TOO_LARGE = f"more than {MOST_PIXELS:,} pixels"
_SMALLER = "make it smaller"
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error, zlib.error)
"""What Pillow raises for files that are damaged."""

register(Image())
