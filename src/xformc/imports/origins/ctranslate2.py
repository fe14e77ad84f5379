"""Reads the Transformers for translation of CTranslate2: a model.bin with its options and its vocabularies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Array, Stored
from xformc.imports.family import FAMILIES, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.ctranslate2_files import (
    CONFIG,
    MODEL,
    PADDINGS,
    Binary,
    class_of,
    count_layers,
    read_binary,
    read_options,
    read_vocabulary,
    scalars,
    scaled,
)
from xformc.imports.origins.ctranslate2_shortlist import VOCABULARY_MAP, read_vocabulary_map
from xformc.imports.origins.subwords import tokenizer_beside

TABLE = FAMILIES.parent / "origins" / "ctranslate2.yaml"
TRANSFORMER = "TransformerSpec"
SIDES = ("source", "target")
EMBEDDINGS = {"source": "encoder/embeddings_0/weight", "target": "decoder/embeddings/weight"}
QUERIES, INNER = "encoder/layer_0/self_attention/linear_0", "encoder/layer_0/ffn/linear_0"
PROJECTION, BIAS = "decoder/projection/weight", "decoder/projection/bias"
NEVER = -1e4
"""The logit of a padding that the model lacks, whose probability is then 0 in float32."""

_UNSAID: Mapping[str, Scalar] = {"num_heads": 8, "activation": 0, "pre_norm": 1}
"""What CTranslate2 takes for numbers that a side of a model does not say."""


@dataclass(frozen=True)
class _Tokens:
    """The tokens of both sides by id, and the special ones.

    ends: whether sources have an end token, which CTranslate2 leaves to its callers: OpenNMT's have none.
    size: the number of tokens of each side, with the padding that is added unless the vocabularies have one.
    """

    names: Mapping[str, Sequence[str]]
    size: int
    pad: int
    begin: int
    end: int
    unknown: int
    ends: bool

    @property
    def added(self) -> bool:
        """Whether the padding is not the model's own."""
        return self.pad == self.size - 1 and all(len(names) < self.size for names in self.names.values())


def _read(path: Path, table: Path | None) -> Origin:
    folder = path if path.is_dir() else path.parent
    place = str(folder / MODEL)
    binary, config = read_binary(folder / MODEL), read_options(folder)
    if binary.name != TRANSFORMER:
        found = f"is a {binary.name[:60]}; imported are {TRANSFORMER}, TransformerDecoderSpec and WhisperSpec"
        raise UserError(found, place=place)
    tensors, numbers = binary.tensors(), binary.numbers()
    zero = numbers.pop("decoder/start_from_zero_embedding", 0)
    tokens = _tokens(folder, config, zero_start=bool(zero))
    values = {**_options(numbers, tensors, place), **_sizes(binary, tensors, place)}
    values |= scalars(config)
    values |= {"vocab_size": tokens.size, "pad": tokens.pad, "begin": tokens.begin, "end": tokens.end}
    values["unknown"] = tokens.unknown
    values["source_ends"] = tokens.ends
    for side, name in EMBEDDINGS.items():
        if tensors[name].shape[0] != len(tokens.names[side]):
            what = f"the vocabulary of the {side} has {len(tokens.names[side]):,} tokens"
            raise UserError(f"{what}, and the model {tensors[name].shape[0]:,}", place=place)
    tensors = _extended(tensors, tokens) if tokens.added else tensors
    values["projection_bias"] = BIAS in tensors
    special = {tokens.unknown: "<unk>", tokens.end: "</s>", tokens.pad: "<pad>"}
    tokenizer = tokenizer_beside(folder, tokens.names, special)
    shortlist = None
    if (folder / VOCABULARY_MAP).is_file():
        known = (tokens.names["source"], tokens.names["target"])
        always = (tokens.unknown, tokens.begin, tokens.end)
        shortlist = read_vocabulary_map(folder / VOCABULARY_MAP, known, always, tokens.size)
    return Origin(place, values, load_family(table or TABLE), lambda _: tensors, tokenizer, shortlist=shortlist)


def _reads(path: Path) -> bool:
    """Whether there is a model.bin that begins as CTranslate2's do: a version, and the name of a class."""
    return class_of(path).endswith(b"Spec\0")


def _options(numbers: Mapping[str, int | float], tensors: Mapping[str, Stored], place: str) -> dict[str, Scalar]:
    """The numbers of the model's parts, with dots. Raises: UserError for those of a layer, or another scale."""
    inside = [name for name in numbers if "/layer_" in name]
    if inside:
        raise UserError(f"has layers with options, which are not imported: {', '.join(inside[:8])}", place=place)
    sides, found = ("encoder", "decoder"), dict[str, Scalar]()
    for side in sides:
        found |= {f"{side}.{name}": value for name, value in _UNSAID.items()}
    found |= {name.replace("/", "."): one for name, one in numbers.items()}
    width = tensors[EMBEDDINGS["target"]].shape[-1] if EMBEDDINGS["target"] in tensors else 1
    for side in sides:
        name = f"{side}/scale_embeddings"
        found[f"{side}.scale_embeddings"] = scaled(numbers.get(name, 1), width, place, name)
    return found


def _sizes(binary: Binary, tensors: Mapping[str, Stored], place: str) -> dict[str, Scalar]:
    """What the shapes of the tensors say. Raises: UserError if one that says it is not there."""
    inner, table = f"{INNER}/weight", "encoder/position_encodings/encodings"
    needed = (*EMBEDDINGS.values(), PROJECTION, inner, table)
    missing = [name for name in needed if name not in tensors or len(tensors[name].shape) != 2]
    if missing:
        raise UserError(f"has no matrix {', '.join(missing)}; other Transformers are not imported", place=place)
    same = [binary.aliases.get(name, name) for name in (*EMBEDDINGS.values(), PROJECTION)]
    shared = {(True, True): "all", (False, True): "target", (True, False): "embeddings"}
    found = {f"{side}_layers": count_layers(tensors, side) for side in ("encoder", "decoder")}
    return {
        **found,
        "d_model": tensors[PROJECTION].shape[1],
        "d_ff": tensors[inner].shape[0],
        "max_positions": min(tensors[name].shape[0] for name in tensors if name.endswith("/encodings")),
        "attention_bias": f"{QUERIES}/bias" in tensors,
        "network": _network(tensors),
        "layernorm_embedding": "encoder/layernorm_embedding/gamma" in tensors,
        "sharing": shared.get((same[0] == same[1], same[1] == same[2]), "none"),
    }


def _network(tensors: Mapping[str, Stored]) -> str:
    """The kind of the feed-forward networks."""
    biased = f"{INNER}/bias" in tensors
    if f"{INNER}_noact/weight" in tensors:
        return "gated_biased" if biased else "gated"
    if biased == (f"{QUERIES}/bias" in tensors):
        return "plain"
    return "biased" if biased else "bare"


def _tokens(folder: Path, config: Mapping[str, object], *, zero_start: bool) -> _Tokens:
    """The tokens of both sides. Raises: UserError for vocabularies whose special tokens differ."""
    place = str(folder / CONFIG)
    if config.get("add_source_bos"):
        raise UserError("add_source_bos: sources with a begin token are not imported", place=place)
    shared = read_vocabulary(folder, "shared_vocabulary")
    names = {side: shared or read_vocabulary(folder, f"{side}_vocabulary") for side in SIDES}
    missing = [side for side in SIDES if not names[side]]
    if missing:
        raise UserError(f"there is no vocabulary of the {missing[0]}", place=str(folder))

    def number(key: str, *sides: str) -> int:
        name = config.get(key)
        if not isinstance(name, str):
            raise UserError(f"{key} must be a token of the vocabulary, found {str(name)[:60]}", place=place)
        found = {names[side].index(name) if name in names[side] else -1 for side in sides}
        if len(found) > 1 or -1 in found:
            raise UserError(f"{key}: {name[:60]} must have one id, the same in both vocabularies", place=place)
        return found.pop()

    padding = next((one for one in PADDINGS if all(one in names[side] for side in SIDES)), None)
    own = {names[side].index(padding) for side in SIDES} if padding is not None else set[int]()
    sizes = {len(names[side]) for side in SIDES}
    added = zero_start or len(own) != 1 or len(sizes) > 1
    pad = max(sizes) if added else own.pop()
    begin = pad if zero_start else number("decoder_start_token", "target")
    end, unknown = number("eos_token", *SIDES), number("unk_token", *SIDES)
    ends = bool(config.get("add_source_eos")) or "<blank>" not in names["source"]
    return _Tokens(names, max(sizes) + added, pad, begin, end, unknown, ends)


def _extended(tensors: Mapping[str, Stored], tokens: _Tokens) -> dict[str, Stored]:
    """The tensors with rows up to the padding, whose embedding is the vector 0 and whose probability is 0."""
    found = dict(tensors)
    found.setdefault(BIAS, Stored(BIAS, (0,), "F32", lambda: np.zeros(0, np.float32)))
    known = tensors[PROJECTION].shape[0]
    for name in (*EMBEDDINGS.values(), PROJECTION):
        one = tensors[name]
        found[name] = Stored(one.name, (tokens.size, one.shape[1]), "F32", partial(_longer, one, tokens.size, 0.0, 0))
    found[BIAS] = Stored(BIAS, (tokens.size,), "F32", partial(_longer, found[BIAS], tokens.size, NEVER, known))
    return found


def _longer(one: Stored, size: int, value: float, zeros: int) -> Array:
    """The rows, then 0 up to the row `zeros`, then the value."""
    array = np.full((size, *one.shape[1:]), value, np.float32)
    array[:zeros] = 0
    array[: one.shape[0]] = one.read()
    return array


READER = Reader(_reads, _read)
