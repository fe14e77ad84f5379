"""What a feature extractor does to samples before wav2vec 2.0 reads them: nothing, or mean 0 and variance 1."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.images import MAX_BYTES, PREPROCESSOR
from xformc.imports.json_file import read_json

SOUND = "sound."
EXTRACTOR, MODELS = "Wav2Vec2FeatureExtractor", ("wav2vec2", "hubert", "wavlm")
PROCESSOR = "processor_config.json"


def read_sounds(folder: Path, model_type: str) -> dict[str, Scalar]:
    """The value `sound.normalize`; none if nothing is said.

    It is in preprocessor_config.json or, since transformers 5, in a part of processor_config.json. The extractor of a
    model of samples need not be named. Raises: UserError for samples of another rate.
    """
    path = next((folder / name for name in (PREPROCESSOR, PROCESSOR) if (folder / name).is_file()), None)
    if path is None:
        return {}
    found = read_json(path, MAX_BYTES, "a config", lambda content: content)
    content: Mapping[str, object] = cast(Mapping[str, object], found) if isinstance(found, dict) else {}
    if path.name == PROCESSOR:
        part = content.get("feature_extractor")
        content = cast(Mapping[str, object], part) if isinstance(part, dict) else {}
    if content.get("feature_extractor_type", EXTRACTOR if content and model_type in MODELS else None) != EXTRACTOR:
        return {}
    rate = content.get("sampling_rate", RATE)
    if rate != RATE or content.get("feature_size", 1) != 1:
        raise UserError(f"samples must be {RATE:,} numbers a second (sampling_rate, feature_size)", place=str(path))
    return {f"{SOUND}normalize": content.get("do_normalize", True) is True}


def extractor_of(values: Mapping[str, Scalar]) -> dict[str, object]:
    """The contents of preprocessor_config.json by its name; none for a model that is not of samples."""
    if f"{SOUND}normalize" not in values:
        return {}
    settings = {"feature_size": 1, "sampling_rate": RATE, "padding_value": 0.0, "return_attention_mask": True}
    kind = {"feature_extractor_type": EXTRACTOR, "do_normalize": values[f"{SOUND}normalize"]}
    return {PREPROCESSOR: {**kind, **settings}}


RATE = 16000
"""Samples a second of all published models."""
