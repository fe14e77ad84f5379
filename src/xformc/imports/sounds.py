"""What a feature extractor does to samples before a model reads them: nothing, a mean and variance, or filter banks."""

from collections.abc import Mapping
from pathlib import Path

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.images import PREPROCESSOR, read_preprocessor

SOUND = "sound."
EXTRACTOR, MODELS = "Wav2Vec2FeatureExtractor", ("wav2vec2", "hubert", "wavlm", "moonshine")
BANKS, NORMALIZED = "Speech2TextFeatureExtractor", ("do_ceptral_normalize", "normalize_means", "normalize_vars")
BANDS = "input_feat_per_channel"
"""The extractor of Kaldi's filter banks, what says that each band has mean 0 and variance 1, and the key of config.json
for their number."""


def read_sounds(folder: Path, model_type: str) -> dict[str, Scalar]:
    """The value `sound.normalize`, or `sound.bands` of filter banks; none if nothing is said.

    The extractor of a model of samples need not be named. Raises: UserError for samples of another rate, and for bands
    that are not normalized.
    """
    path, content = read_preprocessor(folder, "feature_extractor")
    if content.get("feature_extractor_type") == BANKS:
        if content.get("sampling_rate", RATE) != RATE or not all(content.get(key, True) is True for key in NORMALIZED):
            names = f"sampling_rate, {', '.join(NORMALIZED)}"
            raise UserError(f"filter banks must be normalized, of {RATE:,} samples a second ({names})", place=str(path))
        bands = content.get("num_mel_bins", USUAL_BANDS)
        return {f"{SOUND}bands": bands} if isinstance(bands, int) else {}
    if content.get("feature_extractor_type", EXTRACTOR if content and model_type in MODELS else None) != EXTRACTOR:
        return {}
    rate = content.get("sampling_rate", RATE)
    if rate != RATE or content.get("feature_size", 1) != 1:
        raise UserError(f"samples must be {RATE:,} numbers a second (sampling_rate, feature_size)", place=str(path))
    return {f"{SOUND}normalize": content.get("do_normalize", True) is True}


def extractor_of(values: Mapping[str, Scalar]) -> dict[str, object]:
    """The contents of preprocessor_config.json by its name; none for a model that is not of samples."""
    bands = values.get(BANDS)
    if bands is not None:
        return {PREPROCESSOR: {"feature_extractor_type": BANKS, "num_mel_bins": bands, "feature_size": bands}}
    if f"{SOUND}normalize" not in values:
        return {}
    settings = {"feature_size": 1, "sampling_rate": RATE, "padding_value": 0.0, "return_attention_mask": True}
    kind = {"feature_extractor_type": EXTRACTOR, "do_normalize": values[f"{SOUND}normalize"]}
    return {PREPROCESSOR: {**kind, **settings}}


RATE, USUAL_BANDS = 16000, 80
"""Samples a second of all published models, and the bands of filter banks whose number is not said."""
