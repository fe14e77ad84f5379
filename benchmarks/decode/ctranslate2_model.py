"""Converts an xformc Transformer with its weights into a CTranslate2 model with CTranslate2's spec classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec  # pyright: ignore[reportMissingImports]  # of the extra bench
from ctranslate2.specs.common_spec import Activation  # pyright: ignore[reportMissingImports]

from benchmarks.decode.sinusoids import sinusoids
from xformc.compiler.spec import Spec

SPECIAL = ("<blank>", "<unk>", "<s>", "</s>")


def export(
    spec: Spec,
    weights: Mapping[str, np.ndarray],
    folder: Path,
    *,
    quantization: str | None = None,
    pieces: Sequence[str] | None = None,
    positions: int = 512,
) -> None:
    """Write the model of a spec that extends transformer_base, with sinusoidal positions, into `folder`.

    `quantization` is CTranslate2's name for the weight precision, None for float32. `pieces` are the names of the
    tokens of both sides, by default t4, t5 and so on.
    """
    pre_norm = "encoder/final_norm/gain" in weights
    sizes = {name: int(value) for name, value in spec.sizes.items() if name != "dropout"}
    model = TransformerSpec.from_config(sizes["layers"], sizes["heads"], pre_norm=pre_norm)
    write = _Writer(weights)
    encodings = sinusoids(positions, sizes["d_model"])
    for side, part, cross in (("encoder", model.encoder, False), ("decoder", model.decoder, True)):
        embeddings = part.embeddings if cross else part.embeddings[0]
        embeddings.weight = write.tied(f"{side}/embed/embedding/weight")
        part.position_encodings.encodings = encodings
        if pre_norm:
            write.norm(part.layer_norm, f"{side}/final_norm")
        for index, layer in enumerate(part.layer):
            path = f"{side}/{index}"
            own = "causal_self_attention" if cross else "self_attention"
            write.attention(layer.self_attention, f"{path}/{own}", fused=True)
            if cross:
                write.attention(layer.attention, f"{path}/cross_attention", fused=False)
            write.feed_forward(layer.ffn, f"{path}/feed_forward")
    model.decoder.projection.weight = write.tied("logits/weight")
    names = [f"t{index}" for index in range(len(model.decoder.projection.weight))] if pieces is None else pieces
    tokens = [*SPECIAL, *names[len(SPECIAL) :]]
    model.register_source_vocabulary(tokens)
    model.register_target_vocabulary(tokens)
    model.config.add_source_eos = False
    model.config.layer_norm_epsilon = 1e-6
    model.validate()
    model.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(str(folder))


def export_gpt(spec: Spec, weights: Mapping[str, np.ndarray], folder: Path, *, quantization: str | None = None) -> None:
    """Write the model of a spec that extends gpt into `folder`; tokens are named as for `export`."""
    sizes = {name: int(value) for name, value in spec.sizes.items() if name != "dropout"}
    model = TransformerDecoderModelSpec.from_config(
        sizes["layers"], sizes["heads"], pre_norm=True, activation=Activation.GELU
    )
    write, decoder = _Writer(weights), model.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = weights["decoder/embedding/weight"]
    decoder.position_encodings.encodings = weights["decoder/add_positions/weight"]
    write.norm(decoder.layer_norm, "decoder/final_norm")
    for index, layer in enumerate(decoder.layer):
        write.attention(layer.self_attention, f"decoder/{index}/causal_self_attention", fused=True)
        write.feed_forward(layer.ffn, f"decoder/{index}/feed_forward")
    model.register_vocabulary([*SPECIAL, *(f"t{index}" for index in range(len(SPECIAL), sizes["vocabulary"]))])
    model.config.layer_norm_epsilon = 1e-5
    model.validate()
    model.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(str(folder))


class _Writer:
    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights

    def tied(self, path: str) -> np.ndarray:
        """Return the weight at this path, or the embedding that it is tied to."""
        shared = "encoder/embed/embedding/weight"
        return np.ascontiguousarray(self.weights.get(path, self.weights[shared]))

    def norm(self, layer, path: str) -> None:
        layer.gamma, layer.beta = (np.ascontiguousarray(self.weights[f"{path}/{name}"]) for name in ("gain", "bias"))

    def linear(self, layer, *paths: str) -> None:
        """Concatenate the projections at the paths into one CTranslate2 projection."""
        biases = [self.weights[f"{path}/bias"].reshape(-1) for path in paths]
        weights = [
            self.weights[f"{path}/weight"].reshape(len(bias), -1) for path, bias in zip(paths, biases, strict=True)
        ]
        layer.weight, layer.bias = np.concatenate(weights), np.concatenate(biases)

    def attention(self, layer, path: str, *, fused: bool) -> None:
        self.norm(layer.layer_norm, f"{path}/layer_norm")
        query, key, value, output = (f"{path}/{name}" for name in ("query", "key", "value", "output"))
        groups = [(query, key, value), (output,)] if fused else [(query,), (key, value), (output,)]
        for linear, paths in zip(layer.linear, groups, strict=True):
            self.linear(linear, *paths)

    def feed_forward(self, layer, path: str) -> None:
        self.norm(layer.layer_norm, f"{path}/layer_norm")
        self.linear(layer.linear_0, f"{path}/inner")
        self.linear(layer.linear_1, f"{path}/output")
