"""Reads the Transformers of Eole: a folder with config.json, vocab.json and model.00.safetensors or more shards."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Stored, stored_in
from xformc.imports.config import CONFIG, MAX_BYTES, flat_values
from xformc.imports.family import FAMILIES, Family, load_family
from xformc.imports.json_file import read_json
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.eole_settings import derived, with_biases
from xformc.imports.origins.eole_vocabulary import read_vocabulary

TABLE = FAMILIES.parent / "origins" / "eole.yaml"
SHARD = re.compile(r"model\.\d+\.safetensors")

TRANSLATION, SIDES = "translation", ("encoder", "decoder")

SHARED = frozenset(
    """hidden_size layers max_position_embeddings sliding_window heads transformer_ff moe_transformer_ff
relative_positions_buckets mlp_activation_fn layer_norm norm_eps shared_layer_norm ffn_layernorm add_qkvbias
add_key_bias query_norm key_norm value_norm qk_norm_post_rope add_final_linear_bias heads_kv head_dim attn_scaling
add_ffnbias parallel_residual num_experts num_shared_experts shared_expert_gate first_k_dense_replace
num_experts_per_tok moe_softmax_after moe_renormalize q_gating interpolate_mode rope_config""".split()  # noqa: SIM905 (a list of words)
)
"""The settings of layers, which the encoder and the decoder have, and the model for both."""

OF_EMBEDDINGS = ("position_encoding_type", "n_positions", "position_encoding", "word_vec_size", "normalize")
WIDTHS = ("src_word_vec_size", "tgt_word_vec_size")
COPIED = (*OF_EMBEDDINGS, *WIDTHS)
"""The settings of the embeddings, of which other sections may have copies."""

ADAPTED = ("training.lora_layers", "training.lora_embedding", "training.quant_layers")

Values = dict[str, Scalar]


def _reads(path: Path) -> bool:
    """Whether the folder has a config with a `model` that has a decoder or an encoder, as Eole's."""
    if not (path / CONFIG).is_file():
        return False
    try:
        flat = read_json(path / CONFIG, MAX_BYTES, "a config", flat_values)
    except UserError:
        return False
    return any(key.startswith(("model.decoder", "model.encoder", "model.architecture")) for key in flat)


def _read(folder: Path, table: Path | None) -> Origin:
    place = str(folder / CONFIG)
    flat = read_json(folder / CONFIG, MAX_BYTES, "a config", flat_values)
    adapted = [key for key, one in flat.items() if key.startswith(ADAPTED) and one]
    if adapted:
        raise UserError(f"{', '.join(adapted[:8])}: imported are whole weights in floats", place=place)
    tensors = _tensors(folder)
    family, values = _values(load_family(table or TABLE), flat, tensors)
    vocabulary = read_vocabulary(folder, _optional_ends(flat), several=values["kind"] == TRANSLATION)
    whole = with_biases(tensors)
    return Origin(place, values | vocabulary.values(), family, lambda _: whole, vocabulary.tokenizer(folder))


def _tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of all shards. Raises: UserError if there is no shard, or a name is there twice."""
    files = sorted(file for file in folder.iterdir() if SHARD.fullmatch(file.name))
    if not files:
        raise UserError("has no model.00.safetensors", place=str(folder))
    found: dict[str, Stored] = {}
    for file in files:
        for stored in stored_in(file):
            if stored.name in found:
                raise UserError(f"the weight {stored.name[:200]} is there twice", place=str(file))
            found[stored.name] = stored
    return found


def _part(values: Mapping[str, Scalar], name: str) -> Values:
    """The values of a section by their names in it."""
    return {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}


def _root(key: str) -> str:
    return key.partition(".")[0]


def _optional_ends(flat: Mapping[str, Scalar]) -> list[str]:
    """The tokens that end a text besides the end token."""
    return [str(value) for key, value in flat.items() if key.startswith("inference.optional_eos.")]


def _values(family: Family, flat: Values, tensors: Mapping[str, Stored]) -> tuple[Family, Values]:
    """The settings of the model under the names of the table, and the family, which compares those of both sides.

    A setting of the model counts where the encoder or the decoder lacks it.
    """
    model = _part(flat, "model")
    parts = {side: _part(model, side) for side in SIDES}
    kind = _kind(model, parts)
    layers = {side: _layers(model, parts[side]) for side in (SIDES if kind == TRANSLATION else SIDES[1:])}
    values: Values = {"kind": kind, **layers["decoder"], **_embeddings(model), **_dropout(flat)}
    values |= {f"{side}_layers": one.get("layers") for side, one in layers.items()}
    for side in layers:
        values |= {f"{side}.{key}": one for key, one in parts[side].items() if _root(key) not in (*SHARED, *COPIED)}
    values |= {key: one for key, one in model.items() if _root(key) not in (*SHARED, *COPIED, *SIDES, "embeddings")}
    differing = _differing(family, layers) if kind == TRANSLATION else {}
    for key, (encoder, decoder) in differing.items():
        values |= {key: decoder, f"encoder.{key}": encoder}
    renamed = {**family.renamed, **{f"encoder.{key}": key for key in differing}}
    found: Values = {key: one for key, one in values.items() if one is not None and key != "layers"}
    return replace(family, renamed=renamed), derived(found, tensors)


def _kind(model: Values, parts: Mapping[str, Values]) -> str:
    if not parts["decoder"] and model.get("architecture") != "transformer":
        return "encoder"
    return TRANSLATION if parts["encoder"] or model.get("architecture") == "transformer" else "language_model"


def _layers(model: Values, side: Values) -> Values:
    """The settings of the layers of the encoder or the decoder; those of the model have -1 for what is not set."""
    own = {_root(key) for key in side}
    outer = {key: one for key, one in model.items() if _root(key) in SHARED and _root(key) not in own and one != -1}
    inner = {key: one for key, one in side.items() if _root(key) in SHARED}
    return {key: one for key, one in (outer | inner).items() if one is not None}


def _differing(family: Family, layers: Mapping[str, Values]) -> dict[str, tuple[Scalar, Scalar]]:
    """The settings that the encoder and the decoder have otherwise, by the table's defaults where one lacks them."""
    usual = {key: cast(Scalar, tree.value) for key, tree in family.defaults.items()}
    keys = sorted({*layers["encoder"], *layers["decoder"]} - {"layers"})
    pairs = {key: (*(layers[side].get(key, usual.get(key, "none")) for side in SIDES),) for key in keys}
    return {key: (pair[0], pair[1]) for key, pair in pairs.items() if pair[0] != pair[1]}


def _embeddings(model: Values) -> Values:
    """The settings of the embeddings; those of the model count where they are not set. `none` is no positions."""
    own = {key: one for key, one in model.items() if key in OF_EMBEDDINGS} | _part(model, "embeddings")
    if own.get("position_encoding_type", "") is None:
        own["position_encoding_type"] = "none"
    width = own.pop("word_vec_size", None)
    if isinstance(width, int) and width > 0:
        own |= dict.fromkeys(WIDTHS, width)
    return {f"embeddings.{key}": one for key, one in own.items()}


def _dropout(flat: Values) -> Values:
    rate = flat.get("training.dropout.0", flat.get("training.dropout"))
    return {"dropout": rate} if isinstance(rate, int | float) else {}


READER = Reader(_reads, _read)
