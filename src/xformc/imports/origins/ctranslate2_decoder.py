"""Reads the language models of CTranslate2: a model.bin with a decoder alone, its options and its vocabulary."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Stored
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
from xformc.imports.origins.subwords import tokenizer_beside
from xformc.imports.tokenizers import JSON, ForeignTokenizer, read_file

TABLE = FAMILIES.parent / "origins" / "ctranslate2_decoder.yaml"
CLASS = b"TransformerDecoderSpec\0"
VOCABULARY = "vocabulary"
EMBEDDINGS, PROJECTION = "decoder/embeddings/weight", "decoder/projection/weight"
FIRST = "decoder/layer_0"
QUERIES, INNER = f"{FIRST}/self_attention/linear_0", f"{FIRST}/ffn/linear_0"
ROTARY, OFFSET = "layer.self_attention", "layer_norm_use_residual"
LINEAR, LLAMA3 = 0, 2
"""The scalings of rotary positions, by CTranslate2's number of each."""

IN_LAYER = re.compile(r"decoder/layer_\d+/(.+)")

Values = dict[str, Scalar]


def _read(path: Path, table: Path | None) -> Origin:
    folder = path if path.is_dir() else path.parent
    place = str(folder / MODEL)
    binary, config = read_binary(folder / MODEL), read_options(folder)
    tensors = binary.tensors()
    values = {**_options(binary.numbers(), count_layers(tensors, "decoder")), **scalars(config)}
    values |= _sizes(tensors, place)
    _derive(values, binary, tensors, place)
    names = read_vocabulary(folder, VOCABULARY)
    if len(names) != values["vocab_size"]:
        raise UserError(f"its vocabulary has {len(names):,} tokens, and the model {values['vocab_size']}", place=place)
    special = _special(names, config, str(folder / CONFIG))
    tokenizer = _tokenizer(folder, names, special)
    if tokenizer is not None and (folder / JSON).is_file():  # its template says how a text begins
        special["begin"] = tokenizer.first()
    values |= {key: "none" if special.get(key) is None else special[key] for key in ("pad", "begin", "unknown", "end")}
    return Origin(place, values, load_family(table or TABLE), lambda _: tensors, tokenizer)


def _reads(path: Path) -> bool:
    """Whether there is a model.bin whose class is a decoder's."""
    return class_of(path) == CLASS


def _options(numbers: Mapping[str, int | float], layers: int) -> Values:
    """The numbers by the table's names: those of the layers once, or as a text if they are not the same."""
    found: Values = {}
    inside: dict[str, list[int | float]] = {}
    for name, one in numbers.items():
        place = IN_LAYER.fullmatch(name)
        if place is not None:
            inside.setdefault(f"layer.{place[1]}".replace("/", "."), []).append(one)
        else:
            found[name.replace("/", ".")] = one
    for name, ones in inside.items():
        same = len(set(ones)) == 1 and len(ones) == layers
        found[name] = ones[0] if same else f"{', '.join(f'{one:g}' for one in dict.fromkeys(ones))} by layer"
    return found


def _sizes(tensors: Mapping[str, Stored], place: str) -> Values:
    """What the shapes of the tensors say. Raises: UserError if one that says it is not there."""
    missing = [
        name
        for name in (EMBEDDINGS, PROJECTION, f"{QUERIES}/weight", f"{INNER}/weight")
        if name not in tensors or len(tensors[name].shape) != 2
    ]
    if missing:
        raise UserError(f"has no matrix {', '.join(missing)}; other decoders are not imported", place=place)
    vocabulary, width = tensors[EMBEDDINGS].shape
    table = tensors.get("decoder/position_encodings/encodings")
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "d_ff": tensors[f"{INNER}/weight"].shape[0],
        "layers": count_layers(tensors, "decoder"),
        **({} if table is None or not table.shape else {"max_positions": table.shape[0]}),
    }


def _derive(values: Values, binary: Binary, tensors: Mapping[str, Stored], place: str) -> None:
    """Say for the cases of the table what the tensors and the numbers mean together, and leave those numbers out."""
    values["norm"] = norm = _norm(values, tensors)
    values["positions"] = _positions(values, tensors)
    values["embedding"] = _embedding(values, tensors, place)
    values["layer"] = _layer(tensors)
    values["gated"] = gated = f"{INNER}_noact/weight" in tensors
    values["biases"] = biases = _biases(tensors, gated=gated)
    values["head_norms"] = normalized = f"{FIRST}/self_attention/q_norm/gamma" in tensors
    several = f"{ROTARY}.num_heads_kv" in values
    values["grouped"] = several or norm.startswith("rms") or normalized or biases == "queries"
    values["tied"] = binary.aliases.get(PROJECTION, PROJECTION) == binary.aliases.get(EMBEDDINGS, EMBEDDINGS)
    values["projection_bias"] = "decoder/projection/bias" in tensors
    values.setdefault("config.layer_norm_epsilon", 1e-6 if norm.startswith("rms") else 1e-5)
    _scaling(values)


def _norm(values: Values, tensors: Mapping[str, Stored]) -> str:
    """Where the norms are and of which kind."""
    if not values.pop("decoder.pre_norm", 1):
        return "post"
    if any(name.startswith("decoder/") and name.endswith("layer_norm/beta") for name in tensors):
        return "pre"
    offsets = [name for name in values if name.endswith(OFFSET)]
    norms = {name for name in tensors if name.endswith("norm/gamma")}
    kinds = {place[1] if (place := IN_LAYER.fullmatch(name)) else name for name in norms}
    kind = "rms_offset" if any(values[name] for name in offsets) else "rms"
    if kind == "rms" or (len(offsets) == len(kinds) and all(values[name] == 1 for name in offsets)):
        for name in offsets:
            del values[name]
    return kind


def _positions(values: Values, tensors: Mapping[str, Stored]) -> str:
    alibi = values.pop("decoder.alibi", 0)
    if not alibi:
        values.pop("decoder.scale_alibi", None)
    if any("/relative_" in name for name in tensors):
        return "relative"
    if f"{ROTARY}.rotary_dim" in values:
        return "rotary and alibi" if alibi else "rotary"
    return "alibi" if alibi else "learned" if "max_positions" in values else "sinusoids"


def _embedding(values: Values, tensors: Mapping[str, Stored], place: str) -> str:
    """What is done to the embeddings; CTranslate2 scales them if nothing is said."""
    factor = values.pop("decoder.embeddings.multiply_by_sqrt_depth", 1)
    scale = values.pop("decoder.scale_embeddings", factor)
    width = tensors[EMBEDDINGS].shape[1]
    assert isinstance(scale, int | float)
    found = scaled(scale, width, place, "decoder/scale_embeddings")
    normalized = "decoder/layernorm_embedding/gamma" in tensors
    return {(0, False): "plain", (1, False): "scaled", (0, True): "normalized"}.get(
        (found, normalized), "scaled, and normalized"
    )


def _layer(tensors: Mapping[str, Stored]) -> str:
    """The order of a layer's parts."""
    if f"{FIRST}/pre_feedforward_layer_norm/gamma" in tensors:
        return "norms before and after sublayers"
    if f"{FIRST}/shared_layer_norm/gamma" in tensors:
        return "shared"
    return "apart" if f"{FIRST}/input_layer_norm/gamma" in tensors else "in_turn"


def _biases(tensors: Mapping[str, Stored], *, gated: bool) -> str:
    """The maps of a layer that have biases."""
    network = "gated network" if gated else "network"
    maps = {"queries": QUERIES, "outputs": f"{FIRST}/self_attention/linear_1", network: INNER}
    found = [name for name, place in maps.items() if f"{place}/bias" in tensors]
    if found == [*maps][: 2 if gated else 3]:
        return "all"
    return ", ".join(found) or "none"


def _scaling(values: Values) -> None:
    """Leave out the numbers of a scaling of rotary positions that have no effect.

    Without the original number of positions, CTranslate2 divides all frequencies of Llama 3's scaling by its factor.
    """
    original, most = (f"{ROTARY}.{key}" for key in ("original_max_position_embeddings", "max_position_embeddings"))
    kind, factor = f"{ROTARY}.rotary_scaling_type", f"{ROTARY}.rotary_scaling_factor"
    first, last = values.get(original, 0), values.get(most, 0)
    if values.get(kind) == LLAMA3:
        values.pop(most, None)
        if not first:
            values.pop(original, None)
            values[kind] = LINEAR
    elif isinstance(first, int) and isinstance(last, int) and last <= first:
        values.pop(original, None)
        values.pop(most, None)
    if values.get(kind) == LINEAR and values.get(factor, 1) == 1:
        values[kind] = -1


def _special(names: Sequence[str], config: Mapping[str, object], place: str) -> dict[str, int | None]:
    """The special tokens. A begin or an unknown token that is the end token is none.

    Raises: UserError if there is no end token.
    """
    keys = {"end": "eos_token", "begin": "bos_token", "unknown": "unk_token"}
    said = {key: str(config.get(name)) for key, name in keys.items()}
    said["pad"] = next((name for name in PADDINGS if name in names), "")
    found = {key: names.index(name) for key, name in said.items() if name in names}
    if "end" not in found:
        raise UserError(
            f"eos_token: {str(config.get('eos_token'))[:60]} must be a token of the vocabulary", place=place
        )
    return {key: one for key, one in found.items() if key == "end" or one != found["end"]}


def _tokenizer(folder: Path, names: Sequence[str], special: Mapping[str, int | None]) -> ForeignTokenizer | None:
    """The tokenizer in the folder, else the words of the vocabulary; none of a vocabulary without an unknown token."""
    if (folder / JSON).is_file():
        return ForeignTokenizer({JSON: read_file(folder / JSON)}, special.get("unknown"))
    if "unknown" not in special:
        return None
    named = ((special.get(key), name) for key, name in (("unknown", "<unk>"), ("end", "</s>"), ("pad", "<pad>")))
    return tokenizer_beside(folder, {"text": names}, {one: name for one, name in named if one is not None})


READER = Reader(_reads, _read)
