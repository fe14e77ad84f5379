"""Exports models as models of CTranslate2, by its own specification classes: here Transformers for translation."""

import importlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from xformc.compiler.certify.certify import engine_shortlist
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.ops.positions import Sinusoid
from xformc.compiler.shortlist import Shortlist, read_shortlist
from xformc.compiler.spec import Spec
from xformc.compiler.spec.alignment import SOURCE
from xformc.compiler.spec.problems import Source as Text
from xformc.compiler.spec.tree import Plain, parse_yaml
from xformc.errors import UserError
from xformc.exports.compare import as_lines, differences
from xformc.exports.ctranslate2_decoder import decoder_model
from xformc.exports.ctranslate2_layers import Writer
from xformc.exports.source import Source, read_source, spec_of
from xformc.exports.vocabulary_map import write_vocabulary_map
from xformc.files import atomic_directory
from xformc.format.names import MANIFEST, MODEL, SHORTLIST
from xformc.imports.origins.ctranslate2_shortlist import VOCABULARY_MAP
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.run import check_free
from xformc.trainer.run_files import find_run

Array = npt.NDArray[np.float32]
Quantization = Literal["int8", "int16", "float16", "bfloat16"]

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
POSITIONS = 1024
TARGET = "decoder/embed/embedding/weight"


@dataclass(frozen=True)
class Shape:
    """What CTranslate2's classes can vary: layers of both sides, heads, the norm, embeddings, positions, activation."""

    layers: tuple[int, int]
    heads: int
    pre_norm: bool
    scaled: bool
    normalized: bool
    activation: str
    epsilon: float
    positions: tuple[Array, Array]


def export_ctranslate2(path: Path, out: Path, quantization: Quantization | None = None) -> int:
    """Write the folder `out`, which CTranslate2 loads, from a run, a checkpoint or a float32 engine.

    Return the number of parameters. Raises: UserError that names what CTranslate2's classes cannot say, or if the
    package is not installed; then nothing is written.
    """
    check_free(out)
    specs = _specs()
    source = read_source(path)
    if quantization is not None:  # CTranslate2 rounds in place, and the weights of an engine are mapped
        source = replace(source, arrays={name: array.copy() for name, array in source.arrays.items()})
    shortlist = _shortlist(path, source.spec)
    names = [_pieces(source, name, size) for name, size in _vocabularies(source.spec).items()]
    if source.spec.task == "language_model":
        model = decoder_model(specs, source, names[0])
    else:
        shape = find_shape(source.spec, source.arrays, str(path))
        model = _model(specs, shape, source.spec, source.arrays, (names[0], names[1]))
        model.config.add_source_eos = source.spec.inputs[SOURCE].special.ends
    with atomic_directory(out, replace=False) as part:
        model.optimize(quantization=quantization)
        model.save(str(part))
        if shortlist is not None:
            write_vocabulary_map(shortlist, (names[0], names[1]), part / VOCABULARY_MAP)
        for file in source.tokenizers.values() if source.spec.task == "language_model" else ():
            shutil.copy(file, part / file.name)
    return sum(array.size for array in source.arrays.values())


def _shortlist(path: Path, spec: Spec) -> Shortlist | None:
    """The shortlist of an engine that translates, or the one that lies in a run."""
    if spec.task != "translation":
        return None
    inputs = {name: item.recorded for name, item in spec.inputs.items()}
    if (path / MANIFEST).is_file():
        return engine_shortlist(path / MODEL, inputs, spec.written)
    run = find_run(path)
    if run is None or not (run / SHORTLIST).is_file():
        return None
    place = run / SHORTLIST
    return read_shortlist(place).fitted(inputs[SOURCE], inputs[str(spec.written)], str(place))


def export(
    spec: Spec,
    weights: Mapping[str, Array],
    folder: Path,
    *,
    quantization: str | None = None,
    pieces: Sequence[str] | None = None,
    positions: int = 512,
    shortlist: Shortlist | None = None,
) -> None:
    """Write the model of a spec into `folder`, without adding the end token to sources.

    `quantization` is CTranslate2's name for the weight precision, None for float32. `pieces` are the names of the
    tokens of both sides, by default t4, t5 and so on after the special ones.
    """
    shape = find_shape(spec, weights, spec.name, positions)
    size = max(_vocabularies(spec).values())
    special = ["<blank>", "<unk>", "<s>", "</s>"]
    names = [*special, *(pieces or [f"t{index}" for index in range(size)])[len(special) :]]
    folder.mkdir(parents=True, exist_ok=True)
    model = _model(_specs(), shape, spec, weights, (names, names))
    model.optimize(quantization=quantization)
    model.save(str(folder))
    if shortlist is not None:
        write_vocabulary_map(shortlist, (names, names), folder / VOCABULARY_MAP)


def find_shape(spec: Spec, weights: Mapping[str, Array], place: str, positions: int = POSITIONS) -> Shape:
    """The choices of CTranslate2's classes that give the spec's function. Raises: UserError with what differs."""
    if spec.task != "translation":
        message = "CTranslate2 models are written of Transformers for translation and of language models"
        raise UserError(message, place=place)
    found: list[list[str]] = []
    for scaled in (True, False):
        try:
            other = spec_of(_template(spec, weights, scaled=scaled))
        except UserError as error:
            raise UserError(f"cannot be said as a Transformer of CTranslate2: {error.message}", place=place) from error
        found.append(differences(spec, other, "CTranslate2"))
        if not found[-1]:
            return _shape(spec, weights, place, positions, scaled=scaled)
    lines = as_lines(min(found, key=len))
    raise UserError(f"cannot be said as a Transformer of CTranslate2, which differs in:{lines}", place=place)


def _template(spec: Spec, weights: Mapping[str, Array], *, scaled: bool) -> Plain:
    """The Transformer that CTranslate2 computes, with the sizes of this one."""
    said = cast(dict[str, Plain], parse_yaml(Text(spec.name, spec.resolved_yaml())).plain())
    norm: list[Plain] = ["layer_norm"] if "encoder/embed/layer_norm/gain" in weights else []
    scale: list[Plain] = [{"scale": "sqrt(d_model)"}] if scaled else []
    layer: list[Plain] = [
        {"sublayer": "causal_self_attention"},
        {"sublayer": {"cross_attention": {"memory": "encoder"}}},
        {"sublayer": "feed_forward"},
    ]
    below: list[Plain] = [{"sublayer": "self_attention"}, {"sublayer": "feed_forward"}]
    encoder: Plain = {"repeat": "layers", "do": below}
    decoder: Plain = {"repeat": "decoder_layers" if "decoder_layers" in spec.sizes else "layers", "do": layer}
    source, target = _vocabularies(spec)
    project: dict[str, Plain] = {"to": cast(Any, said)["inputs"][target]["tokens"], "bias": "logits/bias" in weights}
    kept = {key: said[key] for key in ("inputs", "special_tokens", "tie", "defaults", "sizes", "train") if key in said}
    choices = cast(dict[str, Plain], said.get("choices", {}))
    return {
        "extends": "transformer_base",
        **kept,
        "choices": {key: choices[key] for key in ("norm", "positions", "activation") if key in choices},
        "blocks": {"embed": {"doc": "", "do": [{"embedding": "d_model"}, *scale, "add_positions", *norm]}},
        "model": {
            "encoder": {"from": source, "do": ["embed", encoder, "final_norm"]},
            "decoder": {"from": target, "do": ["embed", decoder, "final_norm"]},
            "logits": {"from": "decoder", "do": [{"linear": project}]},
        },
    }


def _layers(weights: Mapping[str, Array], side: str) -> int:
    found = {name.split("/")[1] for name in weights if name.startswith(f"{side}/")}
    return max(sum(name.isdecimal() for name in found), 1)


def _vocabularies(spec: Spec) -> dict[str, int]:
    """The number of tokens of the source and the target, in this order."""
    sides = {name: item.vocabulary for name, item in spec.inputs.items() if item.kind == "tokens"}
    return dict(sorted(sides.items(), key=lambda item: item[0] == spec.written))


def _shape(spec: Spec, weights: Mapping[str, Array], place: str, positions: int, *, scaled: bool) -> Shape:
    ops = [node.op for node in spec.graph().nodes]
    epsilons = {op.epsilon for op in ops if isinstance(op, LayerNorm)}
    functions = {op.function for op in ops if isinstance(op, Unary)}
    head = spec.sizes["d_model"] / spec.sizes["heads"]
    lines = [f"sizes.{name}: must be d_model / heads" for name in ("d_k", "d_v") if spec.sizes.get(name, head) != head]
    if len(functions) != 1 or not functions <= ACTIVATIONS.keys():
        lines.append(f"choices.activation: must be one of {', '.join(ACTIVATIONS)}, found {', '.join(functions)}")
    lines += [] if len(epsilons) == 1 else ["layer_norm.epsilon: must be the same everywhere"]
    if lines:
        raise UserError("cannot be said as a Transformer of CTranslate2:\n  " + "\n  ".join(lines), place=place)
    layers = (_layers(weights, "encoder"), _layers(weights, "decoder"))
    norms = ("encoder/final_norm/gain" in weights, "encoder/embed/layer_norm/gain" in weights)
    tables = _positions(spec, weights, positions, place)
    return Shape(layers, int(spec.sizes["heads"]), norms[0], scaled, norms[1], functions.pop(), epsilons.pop(), tables)


def _positions(spec: Spec, weights: Mapping[str, Array], count: int, place: str) -> tuple[Array, Array]:
    """The vectors [count, d_model] that both sides add: learned ones, or sinusoids."""
    name = "{}/embed/add_positions/weight"
    if name.format("encoder") in weights:
        tables = [weights.get(name.format(side), weights[name.format("encoder")]) for side in ("encoder", "decoder")]
        return tables[0], tables[1]
    op = next((node.op for node in spec.graph().nodes if isinstance(node.op, Sinusoid)), None)
    if op is None or op.functions != "both":
        raise UserError("adds no positions that CTranslate2 adds: learned ones, or sinusoids", place=place)
    angles = (np.arange(count) + op.offset)[:, None] * np.array(op.frequencies())
    parts = (np.sin(angles), np.cos(angles))
    table = np.concatenate(parts, 1) if op.halves else np.stack(parts, -1).reshape(count, -1)
    return table.astype(np.float32), table.astype(np.float32)


def _model(
    specs: Any, shape: Shape, spec: Spec, weights: Mapping[str, Array], names: tuple[Sequence[str], Sequence[str]]
) -> Any:
    """CTranslate2's model with these weights, whose tokens of the source and the target have these names."""
    activation = getattr(specs.common_spec.Activation, ACTIVATIONS[shape.activation])
    model = specs.TransformerSpec.from_config(
        shape.layers, shape.heads, pre_norm=shape.pre_norm, activation=activation, layernorm_embedding=shape.normalized
    )
    write = Writer(weights)
    for side, part, table in zip(("encoder", "decoder"), (model.encoder, model.decoder), shape.positions, strict=True):
        cross = side == "decoder"
        embeddings = part.embeddings if cross else part.embeddings[0]
        embeddings.weight = write.tied(f"{side}/embed/embedding/weight")
        part.scale_embeddings = shape.scaled
        part.position_encodings.encodings = table
        if shape.normalized:
            write.norm(part.layernorm_embedding, f"{side}/embed/layer_norm")
        if shape.pre_norm:
            write.norm(part.layer_norm, f"{side}/final_norm")
        for index, layer in enumerate(part.layer):
            own = "causal_self_attention" if cross else "self_attention"
            write.attention(layer.self_attention, f"{side}/{index}/{own}", fused=True)
            if cross:
                write.attention(layer.attention, f"{side}/{index}/cross_attention", fused=False)
            write.feed_forward(layer.ffn, f"{side}/{index}/feed_forward")
    model.decoder.projection.weight = write.tied("logits/weight", TARGET)
    if "logits/bias" in weights:
        model.decoder.projection.bias = np.ascontiguousarray(weights["logits/bias"])
    source, target = names
    special = next(iter(spec.inputs.values())).special
    model.register_source_vocabulary(list(source))
    model.register_target_vocabulary(list(target))
    config, begin = model.config, special.fill if special.begin is None else special.begin
    config.add_source_eos, config.layer_norm_epsilon = False, shape.epsilon
    config.eos_token, config.bos_token, config.decoder_start_token = target[special.last], target[begin], target[begin]
    config.unk_token = target[special.fill if special.unknown is None else special.unknown]
    model.validate()
    return model


def _pieces(source: Source, name: str, size: int) -> list[str]:
    """The names of the tokens of an input by id, no two alike; `<7>` where the tokenizer has none."""
    item, path = source.spec.inputs[name], source.tokenizers.get(name)
    named = [""] * size if path is None else open_vocabulary(path, item.vocabulary, item.special).pieces(range(size))
    seen, known = dict[str, int](), {*named}
    for number, piece in enumerate(named):
        other = f"<{number}>"
        while other in known:
            other = f"<{other}>"
        seen.setdefault(piece if piece and piece not in seen and "\n" not in piece else other, number)
    return list(seen)


def _specs() -> Any:
    try:
        specs: Any = importlib.import_module("ctranslate2.specs")
    except ModuleNotFoundError as error:
        hint = "pip install ctranslate2"
        raise UserError(f"export ct2 needs the package {error.name}, which is not installed", hint=hint) from None
    return specs
