"""Random examples of a spec's inputs, and the same as the arguments of a model of transformers."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input
from xformc.errors import UserError
from xformc.imports.config import read_config
from xformc.imports.images import image_numbers, read_images
from xformc.imports.sounds import FRAMES, MODELS, SOUND, read_sounds

BATCH, LENGTH = 4, 128
IMAGE_AXES = 3
HOPS = 50
"""The positions of a sound of half a second, 10 ms each."""
ABOUT_IMAGES, BEFORE = {"image", "question", "answer"}, "before"
"""The inputs of questions about images, and that of a text before the image."""
SOUND_SIZES = frozenset({"mels", "sound_positions", "window", "max_positions"})


@dataclass(frozen=True)
class Examples:
    """words: what they are. ours: the spec's inputs in order. theirs: the arguments of the origin by name.

    seen: true at the positions [batch, positions] that are no padding, None if the input is no text.
    read: how many positions of the origin's logits come before those of the written text.
    """

    words: str
    ours: tuple[torch.Tensor, ...]
    theirs: Mapping[str, torch.Tensor]
    seen: torch.Tensor | None = None
    read: int = 0


def random_examples(folder: Path, spec: Spec) -> Examples:
    """Four random texts of up to 128 tokens, or images or sounds with or without texts. Raises: UserError for
    others.
    """
    generator = torch.Generator().manual_seed(0)
    first = next(iter(spec.inputs.values()))
    kinds = [item.kind for item in spec.inputs.values()]
    if set(kinds) == {"tokens"}:
        return _texts(spec, generator)
    if kinds[0] == "values" and len(first.axes) == IMAGE_AXES:
        if kinds == ["values"]:
            return _images(folder, first, generator)
        if kinds == ["values", "tokens"]:
            return _captions(folder, spec, generator)
        if spec.inputs.keys() - {BEFORE} == ABOUT_IMAGES:
            return _questions(folder, spec, generator)
    heard = _heard(folder, spec, generator) if first.rate is not None and kinds[1:] in ([], ["tokens"]) else None
    if heard is not None:
        return heard
    known = (
        "texts, images and texts of them, questions about images, and sounds as Whisper, Speech2Text and wav2vec 2.0 do"
    )
    message = f"--replay reads {known}; this model reads {', '.join(kinds)}"
    raise UserError(message, hint="import without --replay")


def _heard(folder: Path, spec: Spec, generator: torch.Generator) -> Examples | None:
    """Sounds, with texts if the model writes them; None for a model that reads sounds in another way."""
    wave, *texts = spec.inputs.values()
    if texts and spec.sizes.keys() >= SOUND_SIZES:
        return _sounds(spec, generator)
    if "frame" in spec.sizes:
        return _banks(folder, spec, generator)
    return _samples(folder, spec, generator) if wave.axes[0].size == 1 else None


def _texts(spec: Spec, generator: torch.Generator) -> Examples:
    """Random tokens; for a model that writes no text, the second one is shorter."""
    length = min(LENGTH, spec.train.max_length)
    texts = [_random_tokens(item, length, generator) for item in spec.inputs.values()]
    names = ("input_ids", "decoder_input_ids") if len(texts) > 1 else ("input_ids",)
    words = f"{texts[-1].numel()} random tokens"
    given: dict[str, torch.Tensor] = dict(zip(names, texts, strict=True))
    if spec.written is not None:
        return Examples(words, (*texts,), given, torch.ones_like(texts[0], dtype=torch.bool))
    seen = _shortened(texts[0], next(iter(spec.inputs.values())))
    return Examples(words, (*texts,), {**given, "attention_mask": seen.long()}, seen)


def _random_tokens(item: Input, length: int, generator: torch.Generator) -> torch.Tensor:
    """Tokens [batch, length] of an input that are not padding."""
    tokens = torch.randint(0, item.vocabulary - 1, (BATCH, length), generator=generator)
    return tokens if item.special.pad is None else tokens + (tokens >= item.special.pad)


def _shortened(tokens: torch.Tensor, item: Input) -> torch.Tensor:
    """Replace the end of the second text by padding. Return the mask of the real tokens."""
    assert item.special.pad is not None
    tokens[1, tokens.shape[1] // 2 :] = item.special.pad
    return tokens != item.special.pad


def _images(folder: Path, item: Input, generator: torch.Generator) -> Examples:
    """Pixels [batch, height, width, channels] from 0 to 1; theirs are normalized, with the channels first."""
    pixels = torch.rand((BATCH, *(axis.size or 0 for axis in item.axes)), generator=generator)
    values = read_images(folder)
    mean, deviation = (torch.tensor(image_numbers(values, name)) for name in ("mean", "deviation"))
    normal = (pixels - mean) / deviation if values else pixels
    return Examples(f"{BATCH} random images", (pixels,), {"pixel_values": normal.permute(0, 3, 1, 2)})


def _captions(folder: Path, spec: Spec, generator: torch.Generator) -> Examples:
    """Images, and texts that are written of them."""
    image, text = spec.inputs.values()
    images, tokens = (
        _images(folder, image, generator),
        _random_tokens(text, min(LENGTH, spec.train.max_length), generator),
    )
    words = f"{images.words} and {tokens.numel()} random tokens"
    return Examples(words, (*images.ours, tokens), {**images.theirs, "decoder_input_ids": tokens})


def _questions(folder: Path, spec: Spec, generator: torch.Generator) -> Examples:
    """Images, questions and answers; theirs are one text, in which a token for each patch stands for the image.

    The first token of the answer is the last one of the question, given again, which theirs have once. With a text
    before the image, all is read causally; else theirs have kinds of tokens, which say what sees each other.
    """
    config = read_config(folder)
    images, patch = _images(folder, spec.inputs["image"], generator), config.get("image_token_index")
    if not isinstance(patch, int):
        raise UserError("config.json has no image_token_index, the token of a patch", place=str(folder))
    last = spec.inputs["question"].special.last
    texts = {
        name: _random_tokens(item, LENGTH // 4, generator)
        for name, item in spec.inputs.items()
        if item.kind == "tokens"
    }
    for tokens in texts.values():
        tokens[tokens == patch] = last
    asked, said = texts["question"], texts["answer"]
    asked[:, -1] = said[:, 0] = last
    shown = int(spec.sizes["patches"]) + (config.get("vision_feature_select_strategy") == "full")  # the class token
    first = [texts[BEFORE]] if BEFORE in texts else []
    text = torch.cat((*first, torch.full((BATCH, shown), patch), asked, said[:, 1:]), 1)
    read = text.shape[1] - said.shape[1] + 1
    theirs = {**images.theirs, "input_ids": text, "attention_mask": torch.ones_like(text)}
    if not first:
        theirs["token_type_ids"] = (torch.arange(text.shape[1]) >= read).long().expand_as(text)
    words = f"{images.words} with questions and {said.numel()} random tokens"
    return Examples(words, (*images.ours, *texts.values()), theirs, read=read - 1)


def _sounds(spec: Spec, generator: torch.Generator) -> Examples:
    """Half as many positions of noise as the model takes, and texts; theirs are the features of the noise."""
    wave, text = spec.inputs.values()
    mels, limit = int(spec.sizes["mels"]), int(spec.sizes["sound_positions"])
    hop, positions = wave.axes[0].size or 0, limit // 2
    samples = 0.1 * torch.randn((BATCH, positions, hop), generator=generator)
    tokens = _random_tokens(text, min(LENGTH, int(spec.sizes["max_positions"])), generator)
    extractor = features(mels, limit * hop, wave.rate or 0, hop, int(spec.sizes["window"]))
    found = extractor(list(samples.flatten(1).numpy()), sampling_rate=wave.rate, return_tensors="pt")
    given = {"input_features": found.input_features, "decoder_input_ids": tokens}
    words = f"{BATCH} random sounds of {positions * hop / (wave.rate or 1):.3g} s"
    return Examples(words, (samples, torch.ones(samples.shape[:2], dtype=torch.bool), tokens), given)


def _banks(folder: Path, spec: Spec, generator: torch.Generator) -> Examples:
    """Sounds of noise, and texts if the model writes them; theirs are Kaldi's filter banks of the noise."""
    wave, *texts = spec.inputs.values()
    samples = 0.1 * torch.randn((BATCH, HOPS, wave.axes[0].size or 0), generator=generator)
    tokens, mels = [_random_tokens(text, LENGTH // 4, generator) for text in texts], int(spec.sizes["mels"])
    transformers: Any = importlib.import_module("transformers")
    if texts:
        extractor = transformers.Speech2TextFeatureExtractor(feature_size=mels, num_mel_bins=mels)
    else:
        values = read_sounds(folder, "")
        numbers = {FRAMES[name]: values[key] for name in FRAMES if (key := f"{SOUND}{name}") in values}
        usual = {"num_mel_bins": mels, "max_length": int(spec.sizes["frames"])}
        extractor = transformers.ASTFeatureExtractor(**{**usual, **numbers})
    found = extractor(list(samples.flatten(1).numpy()), sampling_rate=wave.rate, return_tensors="pt")
    banks = extractor.model_input_names[0]
    given = {banks: found[banks], **dict(zip(("decoder_input_ids",), tokens, strict=False))}
    ours = (samples, torch.ones(samples.shape[:2], dtype=torch.bool), *tokens)
    return Examples(f"{BATCH} random sounds of 0.5 s", ours, given)


def _samples(folder: Path, spec: Spec, generator: torch.Generator) -> Examples:
    """Half a second of noise, every number a position, and texts if the model reads what it has written.

    Theirs has mean 0 and variance 1, if the model wants it.
    """
    wave, *texts = spec.inputs.values()
    rate = wave.rate or 0
    samples = 0.3 * torch.randn((BATCH, rate // 2), generator=generator) + 0.1
    choice = spec.model.choices.get("wave")
    usual = choice is not None and choice.word == "unit"
    normalize = read_sounds(folder, MODELS[0]).get(f"{SOUND}normalize", usual)
    extractor: Any = importlib.import_module("transformers").Wav2Vec2FeatureExtractor(do_normalize=normalize)
    found = extractor(list(samples.numpy()), sampling_rate=rate, return_tensors="pt")
    tokens = [_random_tokens(text, LENGTH // 4, generator) for text in texts]
    ours = (samples.unsqueeze(-1), torch.ones(samples.shape, dtype=torch.bool), *tokens)
    names = ("input_values", "decoder_input_ids")
    given: dict[str, torch.Tensor] = dict(zip(names, (found.input_values, *tokens), strict=False))
    return Examples(f"{BATCH} random sounds of 0.5 s", ours, given)


def features(mels: int, samples: int, rate: int, hop: int, window: int) -> Any:
    """What Whisper makes of sounds: features of as many samples, with silence after a shorter sound."""
    kind: Any = importlib.import_module("transformers").WhisperFeatureExtractor
    extractor = kind(feature_size=mels, sampling_rate=rate, hop_length=hop, n_fft=window)
    extractor.n_samples, extractor.nb_max_frames = samples, samples // hop
    return extractor
