"""What a feature extractor does to samples before wav2vec 2.0 reads them: nothing, or mean 0 and variance 1."""

from collections.abc import Mapping
from pathlib import Path

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.images import PREPROCESSOR, read_preprocessor

SOUND = "sound."
EXTRACTOR, MODELS = "Wav2Vec2FeatureExtractor", ("wav2vec2", "hubert", "wavlm")


def read_sounds(folder: Path, model_type: str) -> dict[str, Scalar]:
    """The value `sound.normalize`; none if nothing is said.

    The extractor of a model of samples need not be named. Raises: UserError for samples of another rate.
    """
    path, content = read_preprocessor(folder, "feature_extractor")
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
