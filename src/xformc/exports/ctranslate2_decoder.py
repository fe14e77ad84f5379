"""Makes models of CTranslate2 of language models, by the table of their import read backwards."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from xformc.exports.hugging_face import find_match
from xformc.exports.source import Array, Source
from xformc.exports.tensors import foreign_tensors
from xformc.format.tokens import SpecialTokens
from xformc.imports.config import Config
from xformc.imports.origins.ctranslate2_decoder import LLAMA3, ROTARY, TABLE

SCALING = ("rotary_scaling_factor", "rotary_low_freq_factor", "rotary_high_freq_factor")


def decoder_model(specs: Any, source: Source, names: Sequence[str]) -> Any:
    """The model with the function of a language model, whose tokens have these names; `specs` is CTranslate2's module.

    Raises: UserError that names whatever CTranslate2's decoder cannot say.
    """
    match = find_match(source, None, TABLE)
    tensors = foreign_tensors(match.family, match.config, match.source.spec.graph(), match.source.arrays)
    model = _empty_model(specs, match.config)
    _write(specs, model, tensors)
    if match.config.value("tied"):
        model.decoder.projection.weight = model.decoder.embeddings.weight
    model.register_vocabulary(list(names))
    _name_tokens(model.config, names, next(iter(source.spec.inputs.values())).special)
    model.config.layer_norm_epsilon = match.config.value("config.layer_norm_epsilon")
    model.validate()
    return model


def _empty_model(specs: Any, config: Config) -> Any:
    """CTranslate2's classes with the numbers of a config, without weights."""
    said = config.value
    norm, positions, layer = (str(said(key)) for key in ("norm", "positions", "layer"))
    heads, of_keys = said("decoder.num_heads"), said(f"{ROTARY}.num_heads_kv")
    size, width = said(f"{ROTARY}.head_dim"), cast(int, said("d_model"))
    model = specs.TransformerDecoderModelSpec.from_config(
        said("layers"),
        heads,
        pre_norm=norm != "post",
        activation=said("decoder.activation"),
        layernorm_embedding=said("embedding") == "normalized",
        ffn_glu=said("gated"),
        rms_norm=norm == "rms",
        alibi=positions == "alibi",
        alibi_use_positive_positions=True,
        parallel_residual=layer != "in_turn",
        shared_layer_norm=layer == "shared",
        num_heads_kv=None if of_keys == heads else of_keys,
        head_dim=None if size == width / cast(int, heads) else size,
        sliding_window=said(f"{ROTARY}.sliding_window") or None,
        qk_norm=said("head_norms"),
        **(_rotary(specs, config) if positions == "rotary" else {}),
    )
    model.decoder.scale_embeddings = said("embedding") == "scaled"
    if positions == "rotary" and said(f"{ROTARY}.rotary_scaling_type") == LLAMA3:
        for one in model.decoder.layer:
            for key in SCALING:  # its class lacks the factor, which the library reads
                object.__setattr__(one.self_attention, key, cast(float, said(f"{ROTARY}.{key}")))
    return model


def _rotary(specs: Any, config: Config) -> dict[str, Any]:
    """The arguments for rotary positions."""
    keys = ("rotary_dim", "rotary_base", "rotary_scaling_type", "rotary_scaling_factor", "rotary_interleave")
    found: dict[str, Any] = {key: config.value(f"{ROTARY}.{key}") for key in keys}
    kind = found["rotary_scaling_type"]
    found["rotary_scaling_type"] = None if kind == -1 else specs.attention_spec.RotaryScalingType(kind)
    found["rotary_interleave"] = bool(found["rotary_interleave"])
    if kind == LLAMA3:
        key = "original_max_position_embeddings"
        found[key] = config.value(f"{ROTARY}.{key}")
    return found


def _write(specs: Any, model: Any, tensors: Mapping[str, Array]) -> None:
    for name, array in tensors.items():
        layer, _, weight = name.rpartition("/")
        setattr(specs.model_spec.index_spec(model, layer), weight, array)


def _name_tokens(config: Any, names: Sequence[str], special: SpecialTokens) -> None:
    """Say the names of the special tokens; a model without a begin token begins with the end token, as GPT-2."""
    config.eos_token = names[special.last]
    config.bos_token = names[special.last if special.begin is None else special.begin]
    config.unk_token = "" if special.unknown is None else names[special.unknown]
