"""What a feature extractor does to samples before a model reads them: nothing, a mean and variance, or filter banks."""

from collections.abc import Mapping
from pathlib import Path

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.images import PREPROCESSOR, read_preprocessor

SOUND = "sound."
EXTRACTOR = "Wav2Vec2FeatureExtractor"
MODELS = ("wav2vec2", "hubert", "wavlm", "unispeech", "data2vec-audio", "moonshine")
BANKS, NORMALIZED = "Speech2TextFeatureExtractor", ("do_ceptral_normalize", "normalize_means", "normalize_vars")
BANDS = "input_feat_per_channel"
SPECTROGRAM = "ASTFeatureExtractor"
FRAMES = {"bands": "num_mel_bins", "frames": "max_length", "mean": "mean", "deviation": "std"}
"""The extractors of Kaldi's filter banks, of sounds of any length and of a fixed number of frames; what says of the
first that each band has mean 0 and variance 1, the key of its config.json for their number, and the keys of the second.
"""


def read_sounds(folder: Path, model_type: str) -> dict[str, Scalar]:
    """The value `sound.normalize`, or those of filter banks, `sound.bands` and others; none if nothing is said.

    The extractor of a model of samples need not be named. Raises: UserError for samples of another rate, and for bands
    that are not normalized.
    """
    path, content = read_preprocessor(folder, "feature_extractor")
    kind = content.get("feature_extractor_type")
    if kind in (BANKS, SPECTROGRAM):
        return {f"{SOUND}{name}": value for name, value in _banks(content, path).items()}
    if content.get("feature_extractor_type", EXTRACTOR if content and model_type in MODELS else None) != EXTRACTOR:
        return {}
    rate = content.get("sampling_rate", RATE)
    if rate != RATE or content.get("feature_size", 1) != 1:
        raise UserError(f"samples must be {RATE:,} numbers a second (sampling_rate, feature_size)", place=str(path))
    return {f"{SOUND}normalize": content.get("do_normalize", True) is True}


def _banks(content: Mapping[str, object], path: Path) -> dict[str, Scalar]:
    """What an extractor says of filter banks: their number, and the mean and deviation if they are the same for all.

    Raises: UserError.
    """
    if content.get("sampling_rate", RATE) != RATE:
        raise UserError(f"filter banks must be of {RATE:,} samples a second (sampling_rate)", place=str(path))
    if content["feature_extractor_type"] == BANKS:
        if not all(content.get(key, True) is True for key in NORMALIZED):
            raise UserError(f"filter banks must be normalized ({', '.join(NORMALIZED)})", place=str(path))
        return _numbers(content, {"bands": "num_mel_bins"})
    found = _numbers(content, FRAMES)
    return found if content.get("do_normalize", True) is True else {**found, "mean": 0.0, "deviation": 0.5}


def _numbers(content: Mapping[str, object], keys: Mapping[str, str]) -> dict[str, Scalar]:
    """The numbers under keys of a file, by our names."""
    found = {name: content.get(key) for name, key in keys.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def extractor_of(values: Mapping[str, Scalar]) -> dict[str, object]:
    """The contents of preprocessor_config.json by its name; none for a model that is not of samples."""
    bands = values.get(BANDS)
    if bands is not None:
        return {PREPROCESSOR: {"feature_extractor_type": BANKS, "num_mel_bins": bands, "feature_size": bands}}
    if f"{SOUND}mean" in values:
        numbers = {FRAMES[name]: values[f"{SOUND}{name}"] for name in ("mean", "deviation")}
        sizes = {key: values.get(key) for key in (FRAMES["bands"], FRAMES["frames"])}
        return {PREPROCESSOR: {"feature_extractor_type": SPECTROGRAM, "do_normalize": True, **numbers, **sizes}}
    if f"{SOUND}normalize" not in values:
        return {}
    settings = {"feature_size": 1, "sampling_rate": RATE, "padding_value": 0.0, "return_attention_mask": True}
    kind = {"feature_extractor_type": EXTRACTOR, "do_normalize": values[f"{SOUND}normalize"]}
    return {PREPROCESSOR: {**kind, **settings}}


RATE = 16000
"""Samples a second of all published models."""
