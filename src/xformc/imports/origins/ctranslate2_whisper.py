"""Reads Whisper as CTranslate2 stores it, as the folder of Hugging Face that it was made from."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Array, Stored
from xformc.imports.family import find_family, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.ctranslate2_files import CONFIG, MODEL, class_of, read_binary, read_options, read_vocabulary
from xformc.imports.tokenizers import find_tokenizer

FAMILY, CLASS = "whisper", b"WhisperSpec\0"
VOCABULARY = "vocabulary"
START, END, SILENT = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
TASKS = ("transcribe", "translate")
ENGLISH_ONLY = 51864
"""The number of tokens of the models without languages, which write English."""
LATEST = 50
"""CTranslate2's default for the timestamp that a text may begin with."""

_RENAMED: Mapping[str, str] = {
    "layer_norm/gamma": "layer_norm.weight",
    "layer_norm/beta": "layer_norm.bias",
    "self_attention/layer_norm/gamma": "self_attn_layer_norm.weight",
    "self_attention/layer_norm/beta": "self_attn_layer_norm.bias",
    "attention/layer_norm/gamma": "encoder_attn_layer_norm.weight",
    "attention/layer_norm/beta": "encoder_attn_layer_norm.bias",
    "ffn/layer_norm/gamma": "final_layer_norm.weight",
    "ffn/layer_norm/beta": "final_layer_norm.bias",
    "ffn/linear_0/weight": "fc1.weight",
    "ffn/linear_0/bias": "fc1.bias",
    "ffn/linear_1/weight": "fc2.weight",
    "ffn/linear_1/bias": "fc2.bias",
    "embeddings/weight": "embed_tokens.weight",
    "position_encodings/encodings": "embed_positions.weight",
    "conv1/weight": "conv1.weight",
    "conv1/bias": "conv1.bias",
    "conv2/weight": "conv2.weight",
    "conv2/bias": "conv2.bias",
}
"""The names of a layer's or a side's tensors, and those in Hugging Face's folder."""

_MAPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "self_attention/linear_0": ("self_attn", ("q_proj", "k_proj", "v_proj")),
    "self_attention/linear_1": ("self_attn", ("out_proj",)),
    "attention/linear_0": ("encoder_attn", ("q_proj",)),
    "attention/linear_1": ("encoder_attn", ("k_proj", "v_proj")),
    "attention/linear_2": ("encoder_attn", ("out_proj",)),
}
"""The maps of attention, of which CTranslate2 stores several as one, and their names in Hugging Face's folder."""

_OPTIONS: Mapping[str, int] = {
    "decoder/activation": 3,  # GELU by the error function
    "decoder/pre_norm": 1,
    "decoder/alibi": 0,
    "decoder/scale_embeddings": 0,
    "decoder/start_from_zero_embedding": 0,
    "decoder/scale_outputs": 0,
}
"""The numbers of every Whisper."""

EPSILON = 1e-5
_PROJECTION = "decoder/projection/weight"
"""The matrix that is the same as that of the embeddings."""

_KEY = "k_proj"
"""The map without a bias: CTranslate2 stores zeros."""

_LAYER = re.compile(r"layer_(\d+)/(.+)")


def _reads(path: Path) -> bool:
    """Whether there is a model.bin whose class is Whisper's."""
    return class_of(path) == CLASS


def _read(path: Path, table: Path | None) -> Origin:
    folder = path if path.is_dir() else path.parent
    place = str(folder / MODEL)
    binary, config = read_binary(folder / MODEL), read_options(folder)
    numbers, tensors = binary.numbers(), _tensors(binary.tensors(), place)
    values: dict[str, Scalar] = {"model_type": FAMILY, **_sizes(tensors, place)}
    values |= _tokens(folder, tensors, _ids(config, "lang_ids", folder), place)
    for side in ("encoder", "decoder"):
        values[f"{side}_attention_heads"] = numbers.get(f"{side}/num_heads")
    for key, name in (("suppress_tokens", "suppress_ids"), ("begin_suppress_tokens", "suppress_ids_begin")):
        values |= {f"{key}.{index}": token for index, token in enumerate(_ids(config, name, folder))}
    _check_options(numbers, place)
    if config.get("layer_norm_epsilon") not in (None, EPSILON):
        raise UserError(f"layer_norm_epsilon must be {EPSILON:g}, as Whisper's is", place=str(folder / CONFIG))
    family = find_family(FAMILY) if table is None else load_family(table)
    return Origin(place, values, family, lambda _: tensors, find_tokenizer(folder))


def _ids(config: Mapping[str, object], name: str, folder: Path) -> list[int]:
    listed: object = config.get(name, [])
    items = cast(list[object], listed) if isinstance(listed, list) else [None]
    ids = [item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
    if len(ids) < len(items):
        raise UserError(f"{name} must be a list of token ids", place=str(folder / CONFIG))
    return ids


def _check_options(numbers: Mapping[str, int | float], place: str) -> None:
    """Raises: UserError for numbers that say another computation than Whisper's."""
    wrong = [f"{name} is {numbers[name]:g}" for name, usual in _OPTIONS.items() if numbers.get(name, usual) != usual]
    wrong += [f"{name} is {one:g}" for name, one in numbers.items() if "/layer_" in name]
    wrong += [f"{side}/num_heads is not there" for side in SIDES if f"{side}/num_heads" not in numbers]
    if wrong:
        raise UserError(f"is no Whisper as it is published: {', '.join(wrong)}", place=place)


def _sizes(tensors: Mapping[str, Stored], place: str) -> dict[str, Scalar]:
    """What the shapes say, by the keys of a config. Raises: UserError if a tensor that says it is not there."""

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in tensors or len(tensors[name].shape) != axes:
            raise UserError(f"has no {name} of {axes} axes", place=place)
        return tensors[name].shape

    layers = {side: {name.split(".")[2] for name in tensors if name.startswith(f"{side}.layers.")} for side in SIDES}
    vocabulary, width = shape("decoder.embed_tokens.weight", 2)
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "num_mel_bins": shape("encoder.conv1.weight", 3)[1],
        "max_source_positions": shape("encoder.embed_positions.weight", 2)[0],
        "max_target_positions": shape("decoder.embed_positions.weight", 2)[0],
        "encoder_ffn_dim": shape("encoder.layers.0.fc1.weight", 2)[0],
        "decoder_ffn_dim": shape("decoder.layers.0.fc1.weight", 2)[0],
        **{f"{side}_layers": len(found) for side, found in layers.items()},
        **_SEARCH,
    }


SIDES = ("encoder", "decoder")
_SEARCH: Mapping[str, Scalar] = {"num_beams": 5, "early_stopping": True, "length_penalty": 1.0}
"""CTranslate2's defaults for Whisper, by the keys of a config."""


def _tokens(folder: Path, tensors: Mapping[str, Stored], languages: Sequence[int], place: str) -> dict[str, Scalar]:
    """The special tokens by the keys of a config. Raises: UserError for a vocabulary that lacks one."""
    names, size = read_vocabulary(folder, VOCABULARY), tensors["decoder.embed_tokens.weight"].shape[0]
    if not names:
        raise UserError(f"there is neither {VOCABULARY}.json nor {VOCABULARY}.txt", place=str(folder))
    missing = [name for name in (START, END, SILENT) if name not in names]
    if missing or len(names) != size:
        what = f"lacks {', '.join(missing)}" if missing else f"has {len(names):,} tokens, and the model {size:,}"
        raise UserError(f"its vocabulary {what}", place=place)
    found: dict[str, Scalar] = {"decoder_start_token_id": names.index(START), "eos_token_id": names.index(END)}
    found |= {"no_timestamps_token_id": names.index(SILENT), "max_initial_timestamp_index": LATEST}
    if size == ENGLISH_ONLY:
        return found | {"forced_decoder_ids.0.0": 1, "forced_decoder_ids.0.1": names.index(SILENT)}
    tasks = {f"task_to_id.{task}": names.index(f"<|{task}|>") for task in TASKS if f"<|{task}|>" in names}
    known = {f"lang_to_id.{names[one]}": one for one in languages if one < size}
    return {**found, **tasks, **known}


def _tensors(stored: Mapping[str, Stored], place: str) -> dict[str, Stored]:
    """The tensors under the names of Hugging Face's folder. Raises: UserError for one that Whisper has not."""
    found: dict[str, Stored] = {}
    for name, one in stored.items():
        side, _, rest = name.partition("/")
        layer = _LAYER.fullmatch(rest)
        start, inner = (f"{side}.layers.{layer[1]}", layer[2]) if layer else (side, rest)
        module, _, kind = inner.rpartition("/")
        if module in _MAPS:
            owner, maps = _MAPS[module]
            parts = _parts(one, len(maps), place)
            found |= {f"{start}.{owner}.{own}.{kind}": part for own, part in zip(maps, parts, strict=True)}
        elif inner in _RENAMED:
            found[f"{start}.{_RENAMED[inner]}"] = one
        elif name not in (_PROJECTION, "decoder/alignment_heads"):
            raise UserError(f"has a tensor that Whisper has not: {name[:100]}", place=place)
    projection, table = (stored.get(name) for name in (_PROJECTION, "decoder/embeddings/weight"))
    if projection is not None and table is not None and not np.array_equal(projection.read(), table.read()):
        raise UserError(f"{_PROJECTION} must have the numbers of the embeddings, to which Whisper ties it", place=place)
    for name in [name for name in found if name.endswith(f"{_KEY}.bias")]:
        if np.any(found.pop(name).read()):
            raise UserError(f"{name} is not 0, as Whisper's is", place=place)
    return found


def _parts(one: Stored, count: int, place: str) -> list[Stored]:
    """The tensors that are stored as one, a part of the rows each."""
    rows, rest = divmod(one.shape[0], count)
    if rest:
        raise UserError(f"{one.name[:100]} has {one.shape[0]} rows, which are no {count} maps", place=place)
    shape = (rows, *one.shape[1:])
    return [Stored(one.name, shape, one.kind, partial(_rows, one, part * rows, rows)) for part in range(count)]


def _rows(one: Stored, first: int, count: int) -> Array:
    return one.read()[first : first + count]


READER = Reader(_reads, _read)
