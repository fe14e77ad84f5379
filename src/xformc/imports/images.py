"""What preprocessor_config.json does to the pixels of an image before a model reads them: a mean and a deviation."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.json_file import read_json

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
MAX_BYTES = 1 << 20
IMAGES = "images."
FIELDS = {"mean": "image_mean", "deviation": "image_std"}
OF_IMAGES = {"image_processor_type", *FIELDS.values(), "do_rescale", "rescale_factor", "do_resize", "size"}
"""Keys of the file that only a model of images has."""
STANDARD = 0.5
"""The mean and the deviation of each channel if the file has none, as those of ViT's and DeiT's processors."""
MOST_CHANNELS = 16


def read_images(folder: Path) -> dict[str, Scalar]:
    """The values `images.normalize`, `images.mean.0` and so on, for pixels from 0 to 1; none if nothing is said.

    Raises: UserError for numbers that are none, or if pixels are not divided by 255.
    """
    path, content = read_preprocessor(folder, "image_processor")
    if not content.keys() & OF_IMAGES:
        return {}
    factor = content.get("rescale_factor", 1 / 255)
    divided = isinstance(factor, int | float) and math.isclose(factor, 1 / 255, rel_tol=1e-6)
    if content.get("do_rescale", True) is not True or not divided:
        raise UserError("pixels must be divided by 255 (do_rescale, rescale_factor)", place=str(path))
    if content.get("do_normalize", True) is not True:
        return {}
    values: dict[str, Scalar] = {f"{IMAGES}normalize": True}
    for name, key in FIELDS.items():
        values |= {f"{IMAGES}{name}.{index}": one for index, one in enumerate(_numbers(content, key, path))}
    return values


def read_preprocessor(folder: Path, part: str) -> tuple[Path, Mapping[str, object]]:
    """The file that says what is done to an input, and what it says; nothing if there is none.

    It is preprocessor_config.json or, of models of several kinds of inputs since transformers 5, a part of
    processor_config.json. Raises: UserError for a file that is no JSON.
    """
    path = next((folder / name for name in (PREPROCESSOR, PROCESSOR) if (folder / name).is_file()), folder)
    found: object = read_json(path, MAX_BYTES, "a config", lambda content: content) if path.is_file() else None
    content = _section(found)
    return path, _section(content.get(part)) if path.name == PROCESSOR else content


def _section(found: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], found) if isinstance(found, dict) else {}


def preprocessor_of(values: Mapping[str, Scalar], height: int) -> dict[str, object]:
    """The contents of preprocessor_config.json by its name, for square images; none if pixels are not normalized."""
    if not values.get(f"{IMAGES}normalize"):
        return {}
    sides: dict[str, object] = {"size": {"height": height, "width": height}, "do_resize": True, "resample": 2}
    numbers = {key: list(image_numbers(values, name)) for name, key in FIELDS.items()}
    kind = {"image_processor_type": "ViTImageProcessor", "do_rescale": True, "rescale_factor": 1 / 255}
    return {PREPROCESSOR: {**kind, "do_normalize": True, **numbers, **sides}}


def image_numbers(values: Mapping[str, Scalar], name: str) -> tuple[float, ...]:
    """The mean or the deviation of each channel; none if pixels are not normalized."""
    found = [values.get(f"{IMAGES}{name}.{index}") for index in range(MOST_CHANNELS)]
    return tuple(float(one) for one in found if isinstance(one, int | float))


def _numbers(content: Mapping[str, object], key: str, path: Path) -> list[float]:
    items = content.get(key, [STANDARD] * 3)
    listed = cast(list[object], items) if isinstance(items, list) else []
    numbers = [float(one) for one in listed if isinstance(one, int | float) and math.isfinite(one)]
    bad = len(numbers) != len(listed) or not 0 < len(listed) <= MOST_CHANNELS or (key == "image_std" and 0.0 in numbers)
    if bad:
        raise UserError(f"{key} must be a number for each channel, and no deviation is 0", place=str(path))
    return numbers
