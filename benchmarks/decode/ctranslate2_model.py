"""Converts an xformc language model with its weights into a CTranslate2 model with CTranslate2's spec classes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec  # pyright: ignore[reportMissingImports]  # of the extra bench
from ctranslate2.specs.common_spec import Activation  # pyright: ignore[reportMissingImports]

from xformc.compiler.spec import Spec
from xformc.exports.ctranslate2 import Writer

SPECIAL = ("<blank>", "<unk>", "<s>", "</s>")


def export_gpt(spec: Spec, weights: Mapping[str, np.ndarray], folder: Path, *, quantization: str | None = None) -> None:
    """Write the model of a spec that extends gpt into `folder`; tokens are named as for `export`."""
    sizes = {name: int(value) for name, value in spec.sizes.items() if name != "dropout"}
    model = TransformerDecoderModelSpec.from_config(
        sizes["layers"], sizes["heads"], pre_norm=True, activation=Activation.GELU
    )
    write, decoder = Writer(weights), model.decoder
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
