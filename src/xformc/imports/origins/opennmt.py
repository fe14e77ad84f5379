"""Reads the Transformers of OpenNMT-py 3: a checkpoint, which holds its options and vocabularies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Stored, stored_in
from xformc.imports.family import FAMILIES, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.pickled import is_scalar, names_in, options, read_pickle, stored_tensor
from xformc.imports.origins.subwords import tokenizer_beside
from xformc.imports.tokenizers import ForeignTokenizer

TABLE = FAMILIES.parent / "origins" / "opennmt.yaml"
LANGUAGE_MODEL = "lm"
SIDES = {"source": "src", "target": "tgt"}
PAD, UNKNOWN, BEGIN, END = "<blank>", "<unk>", "<s>", "</s>"

OF_MODEL = tuple(
    """src_word_vec_size tgt_word_vec_size share_decoder_embeddings share_embeddings position_encoding
position_encoding_type model_task model_type encoder_type decoder_type enc_layers dec_layers enc_hid_size dec_hid_size
layer_norm norm_eps pos_ffn_activation_fn self_attn_type max_relative_positions relative_positions_buckets
rotary_interleave rotary_theta rotary_dim heads sliding_window transformer_ff num_experts num_experts_per_tok aan_useffn
add_qkvbias multiquery num_kv add_ffnbias parallel_residual shared_layer_norm copy_attn coverage_attn
generator_function n_src_feats full_context_alignment lora_embedding""".split()  # noqa: SIM905 (a list of words)
)
"""The options that may change what a Transformer computes, and those that have an effect only beside others."""

LISTS = ("lora_layers", "quant_layers")
BESIDE = {
    "position_encoding_type": ("position_encoding", True),
    "rotary_interleave": ("max_relative_positions", -1),
    "rotary_theta": ("max_relative_positions", -1),
    "rotary_dim": ("max_relative_positions", -1),
}
"""The options that have an effect only if another one has this value."""

OF_ENCODER = ("enc_layers", "enc_hid_size", "src_word_vec_size", "encoder_type")
"""The options that a language model has without an encoder."""

GATED = ("silu", "gated-gelu")


def _read(path: Path, table: Path | None) -> Origin:
    checkpoint = path if path.is_file() else cast(Path, _checkpoint(path))
    content, place = read_pickle(checkpoint), str(checkpoint)
    tensors, given = _tensors(content, checkpoint), options(content.get("opt"))
    names = _vocabularies(content.get("vocab"), place, alone=given.get("model_task") == LANGUAGE_MODEL)
    values = {**_options(given, tensors, place), **_special(content.get("vocab"), names, place)}
    values |= {f"{side}_vocabulary": len(tokens) for side, tokens in names.items()}
    return Origin(place, values, load_family(table or TABLE), lambda _: tensors, _tokenizer(checkpoint, values, names))


def _reads(path: Path) -> bool:
    """Whether it is a checkpoint with vocabularies and options, or a folder with one: fairseq's have neither."""
    file = path if path.is_file() else _checkpoint(path)
    return file is not None and file.suffix == ".pt" and {"vocab", "opt"} <= names_in(file)


def _checkpoint(folder: Path) -> Path | None:
    """The only checkpoint of a folder."""
    found = sorted(folder.glob("*.pt"))
    return found[0] if len(found) == 1 else None


def _vocabularies(stored: object, place: str, *, alone: bool) -> dict[str, list[str]]:
    """The tokens of both sides by id; with `alone`, of the target, which must be those of the source.

    Raises: UserError for those of another version.
    """
    lists = options(stored)
    found = {side: _names(lists.get(key)) for side, key in SIDES.items()}
    if not all(found.values()):
        hint = "convert it to version 3 with OpenNMT-py's tools/convertv2_v3.py"
        raise UserError("its vocabularies are no lists of tokens, as those of OpenNMT-py 3", place=place, hint=hint)
    if alone and found["source"] != found["target"]:
        raise UserError("both vocabularies of a language model must have the same tokens", place=place)
    return {"target": found["target"]} if alone else found


def _names(value: object) -> list[str]:
    items = cast(list[object], value) if isinstance(value, list) else []
    names = [item for item in items if isinstance(item, str)]
    return names if len(names) == len(items) == len(set(names)) else []


def _special(stored: object, names: Mapping[str, Sequence[str]], place: str) -> dict[str, Scalar]:
    """The ids of the special tokens. Raises: UserError unless they are the same in both vocabularies."""
    start = options(stored).get("decoder_start_token", BEGIN)
    tokens = {"pad": PAD, "unknown": UNKNOWN, "end": END, "begin": str(start)}
    found = {key: {_place(tokens[key], side) for side in names.values()} for key in tokens}
    begun = bool(start) or len(names) > 1  # a language model may have no begin token
    wrong = [tokens[key] for key, ids in found.items() if (len(ids) > 1 or -1 in ids) and (begun or key != "begin")]
    if wrong:
        raise UserError(f"{', '.join(wrong)} must have one id, the same in both vocabularies", place=place)
    return {**{key: ids.pop() for key, ids in found.items()}, **({} if begun else {"begin": "none"})}


def _place(token: str, names: Sequence[str]) -> int:
    return names.index(token) if token in names else -1


def _options(given: Mapping[str, object], tensors: Mapping[str, Stored], place: str) -> dict[str, Scalar]:
    """The options of the model. Raises: UserError for layers that are stored in another form."""
    stored = [f"{key}: {given[key]}"[:80] for key in LISTS if given.get(key)]
    if stored:
        raise UserError(f"{', '.join(stored)}: imported are whole weights in floats", place=place)
    usual: dict[str, object] = {"position_encoding": False, "max_relative_positions": 0}
    found: dict[str, Scalar] = {key: one for key in OF_MODEL if is_scalar(one := given.get(key)) and one is not None}
    if found.get("position_encoding") and found.get("max_relative_positions"):
        raise UserError("position_encoding and max_relative_positions exclude each other", place=place)
    for key, (other, value) in BESIDE.items():
        if found.get(other, usual[other]) != value:
            found.pop(key, None)
    dropout = given.get("dropout")
    rate = cast(list[object], dropout or [None])[0] if isinstance(dropout, list) else dropout
    if isinstance(rate, int | float):
        found["dropout"] = rate
    derived = {**_feed_forward(found, tensors), **_heads(found), **_relative(found)}
    derived |= _alone(found) if found.get("model_task") == LANGUAGE_MODEL else _sharing(found)
    return {**found, **derived}


def _feed_forward(found: dict[str, Scalar], tensors: Mapping[str, Stored]) -> dict[str, Scalar]:
    """The kind of the feed-forward networks, for `add_ffnbias`: 1 if they have biases, and 2 if they are gated."""
    said = bool(found.pop("add_ffnbias", False))
    biased = said or any(name.endswith("feed_forward.w_1.bias") for name in tensors)
    return {"ffn": biased + 2 * (found.get("pos_ffn_activation_fn") in GATED)}


def _relative(found: dict[str, Scalar]) -> dict[str, Scalar]:
    """The buckets of distances, and the largest one that is told apart, if there are some."""
    buckets, most = found.get("relative_positions_buckets", 0), found.get("max_relative_positions", 0)
    if not (isinstance(buckets, int) and isinstance(most, int) and buckets > 0 and most > 0):
        return {}
    return {"buckets": buckets, "max_distance": most, "relative_positions_buckets": 0, "max_relative_positions": 0}


def _sharing(found: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Which embeddings and projections are one matrix."""
    names = {(True, True): "all", (False, True): "target", (True, False): "embeddings"}
    shared = bool(found.get("share_embeddings")), bool(found.get("share_decoder_embeddings"))
    return {"sharing": names.get(shared, "none")}


def _alone(found: dict[str, Scalar]) -> dict[str, Scalar]:
    """What a language model says otherwise, whose options of an encoder mean nothing."""
    for key in OF_ENCODER:
        found.pop(key, None)
    if found.get("decoder_type") == "transformer_lm":
        found["decoder_type"] = "transformer"
    if found.get("parallel_residual") is True:
        found["parallel_residual"] = "shared" if found.get("shared_layer_norm") else "apart"
    return {"sharing": "tied" if found.get("share_decoder_embeddings") else "untied", "encoder_type": "none"}


def _heads(found: dict[str, Scalar]) -> dict[str, Scalar]:
    """The number of heads of keys and values, for `multiquery` and `num_kv`, and whether queries have more."""
    one, several = found.pop("multiquery", False), found.pop("num_kv", 0)
    count = several or int(bool(one))
    grouped = count not in (0, found.get("heads", 8))
    return {"grouped": True, "num_kv": count} if grouped else {"grouped": False}


def _tensors(content: Mapping[str, object], checkpoint: Path) -> dict[str, Stored]:
    """The tensors of the model and of its generator by name; those of a file of safetensors if the checkpoint has none.

    Raises: UserError if there are none.
    """
    if "model" not in content:
        beside = checkpoint.with_suffix(".safetensors")
        if not beside.is_file():
            raise UserError(f"has no weights, and there is no {beside.name} beside it", place=str(checkpoint))
        return {_renamed(one.name): one for one in stored_in(beside)}
    found: dict[str, Stored] = {}
    for section, prefix in (("model", ""), ("generator", "generator.")):
        for name, tensor in options(content.get(section)).items():
            if isinstance(tensor, torch.Tensor):
                found[_renamed(f"{prefix}{name}")] = stored_tensor(f"{prefix}{name}", tensor)
    return found


def _renamed(name: str) -> str:
    """The name in version 3, where the layer norms and the generator of older ones had others."""
    return name.replace(".a_2", ".weight").replace(".b_2", ".bias").replace("generator.0.", "generator.")


def _tokenizer(checkpoint: Path, values: Mapping[str, Scalar], names: Mapping[str, Sequence[str]]) -> ForeignTokenizer:
    special = {cast(int, values[key]): name for key, name in (("unknown", "<unk>"), ("end", "</s>"), ("pad", "<pad>"))}
    return tokenizer_beside(checkpoint.parent, names, special)


READER = Reader(_reads, _read)
