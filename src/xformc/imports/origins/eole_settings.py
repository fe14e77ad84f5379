"""Says of Eole's settings what they mean together, for the cases of its table."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from xformc.compiler.spec.tree import Scalar
from xformc.imports.checkpoint import Array, Stored

USUAL_LENGTH = 1024
MOST_LENGTH = 10**6
SINUSOIDS = ("SinusoidalInterleaved", "SinusoidalConcat")

OPTIONAL = ("linear_keys", "final_linear")
"""The maps of an attention that may lack a bias where its queries and values have one."""

Values = dict[str, Scalar]


def derived(values: Values, tensors: Mapping[str, Stored]) -> Values:
    """The settings, of which those that belong together are one, and those without an effect are left out."""
    found = {**values, "attention_bias": any(name.endswith("_query.bias") for name in tensors), **_heads(values)}
    found |= _sharing(values)
    _positions(found)
    if values["kind"] == "language_model":
        _of_language_model(found)
    return found


def _heads(values: Values) -> Values:
    """The size of a head, whether keys and values have fewer heads, and what normalizes the heads."""
    heads, width = values.get("heads", 8), values.get("hidden_size", 512)
    size = values.get("head_dim")
    if size is None and isinstance(heads, int) and isinstance(width, int) and heads > 0:
        size = width // heads
    norms = {bool(values.get(f"{key}_norm")) for key in ("query", "key")}
    kind = str(values.get("layer_norm", "standard"))
    if len(norms) > 1:
        normalized: Scalar = "of queries or keys alone"
    elif True not in norms:
        normalized = False
    else:
        normalized = "rms" if kind in ("rms", "gemma-rms") and values["kind"] == "language_model" else f"{kind} norms"
    scaling = {"attn_scaling": None} if values.get("attn_scaling") == size else {}
    return {"d_k": size, "grouped": values.get("heads_kv", heads) != heads, "head_norms": normalized, **scaling}


def _sharing(values: Values) -> Values:
    """Which embeddings and projections are one matrix."""
    output = bool(values.get("share_decoder_embeddings"))
    if values["kind"] == "language_model":
        return {"sharing": "tied" if output else "untied"}
    names = {(True, True): "all", (False, True): "target", (True, False): "embeddings"}
    return {"sharing": names.get((bool(values.get("share_embeddings")), output), "none")}


def _positions(found: Values) -> None:
    """Leave out what other kinds of positions have, and say what scales the embeddings, and how long texts may be."""
    kind = found.get("embeddings.position_encoding_type", SINUSOIDS[0])
    if kind != "Rotary":
        for key in [key for key in found if key.startswith(("rope_config.", "encoder.rope_config."))]:
            del found[key]
    if found.get("rope_config.rotary_dim") in (0, found["d_k"]):
        found.pop("rope_config.rotary_dim", None)
    normalized = "normalize" if found.get("embeddings.normalize") else "nothing"
    sinusoids = "sinusoids scaled again" if found.get("embeddings.normalize") else "sinusoids"  # refused
    found["embed"] = sinusoids if kind in SINUSOIDS else normalized
    limits = {"Learned": found.get("embeddings.n_positions"), "Rotary": found.get("max_position_embeddings")}
    limit = limits.get(str(kind))
    found["max_length"] = min(max(2, limit), MOST_LENGTH) if isinstance(limit, int) else USUAL_LENGTH


def _of_language_model(found: Values) -> None:
    """What models without an encoder may have: parallel sublayers, windows, and biases by distance."""
    if found.get("parallel_residual") is True:
        found["parallel_residual"] = "shared" if found.get("shared_layer_norm") else "apart"
    if found.get("sliding_window"):
        found["window"] = found.pop("sliding_window")
    if found.get("embeddings.position_encoding_type") == "Relative" and found.get("relative_positions_buckets"):
        found["embeddings.position_encoding_type"] = "buckets"
        found["buckets"] = found.pop("relative_positions_buckets")


def with_biases(tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors with biases of 0 for the keys or the outputs of an attention whose queries have biases, if none of
    the layers has one."""
    found = dict(tensors)
    for name, one in tensors.items():
        part, _, last = name.rpartition(".")
        inside, _, part_name = part.rpartition(".")
        if part_name not in OPTIONAL or last != "weight" or f"{inside}.linear_query.bias" not in tensors:
            continue
        stack, _, kind = inside.partition(".transformer_layers.")
        like = (f"{stack}.transformer_layers.", f".{kind.partition('.')[2]}.{part_name}.bias")
        if len(one.shape) == 2 and not any(key.startswith(like[0]) and key.endswith(like[1]) for key in tensors):
            bias = f"{part}.bias"
            found[bias] = Stored(bias, one.shape[:1], "F32", partial(_zeros, one.shape[0]))
    return found


def _zeros(size: int) -> Array:
    return np.zeros(size, np.float32)
