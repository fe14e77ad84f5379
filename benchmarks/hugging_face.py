"""Hugging Face's Marian with the weights of an xformc Transformer, run with `generate` on PyTorch and ONNX Runtime.

Both compute in float32, whatever the engine's precision, with the engine's beam size, and stop when that number of
hypotheses have finished (`early_stopping`). They differ from docs/search.md in two ways. The log probability of a
hypothesis is divided by length^length_penalty, not by ((5 + length) / 6)^length_penalty, so that a penalty other than 0
changes some translations. The limit of the output is that of the longest source in the batch.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decode.sinusoids import sinusoids
from xformc.compiler.spec import Spec
from xformc.format.manifest import SearchOptions
from xformc.format.tokens import BEGIN, END, PAD
from xformc.runtime import Engine
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import length_limit
from xformc.runtime.text.texts import Limit, encode_line

LONGEST = 1024
"""Maximum tokens of a source; longer ones are cut."""

EPSILON = 1e-6
"""The epsilon of our layer norms; Marian's is 1e-5, which its configuration cannot change."""

EMBEDDING = "encoder/embed/embedding/weight"
SIDES = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "causal_self_attention", "encoder_attn": "cross_attention"},
}
"""The attentions of a layer on each side: Marian's name, and ours."""

PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
FEED_FORWARD = {"fc1": "inner", "fc2": "output"}


class Translator:
    """Translates text with Hugging Face's `generate`, with the engine's search options."""

    def __init__(self, model: Any, engine: Engine, options: SearchOptions) -> None:
        """Use `model`, whose generation configuration is replaced, with the tokenizer of `engine`."""
        assert engine.tokenizer is not None
        self._model, self._options, self._tokenizer = model, options, engine.tokenizer
        model.generation_config = import_module("transformers").GenerationConfig(
            num_beams=options.beam_size,
            length_penalty=options.length_penalty,
            early_stopping=options.beam_size > 1,
            do_sample=False,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
        )

    def translate(self, batch_tokens: int, lines: Sequence[str]) -> tuple[float, list[str]]:
        """Return the seconds and translations of lines, in batches of similar length and at most `batch_tokens`."""
        began = time.perf_counter()
        encode = partial(self._tokenizer.encode, "source")
        rows = [
            encode_line(n, line, encode=encode, limit=Limit(LONGEST), truncate=True) for n, line in enumerate(lines, 1)
        ]
        texts = [""] * len(rows)
        for batch in batches([len(row) for row in rows], batch_tokens):
            for index, ids in zip(batch, self._search([rows[index] for index in batch]), strict=True):
                texts[index] = self._tokenizer.decode("target", ids)
        return time.perf_counter() - began, texts

    def best(self, lines: Sequence[str], choices: Sequence[int]) -> int:
        """Return the batch size in tokens, one of `choices`, that is fastest on these lines, the better of two runs."""
        return min(choices, key=lambda tokens: min(self.translate(tokens, lines)[0] for _ in range(2)))

    def _search(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the best hypothesis of each row of source ids: the begin token, ids, the end token, padding."""
        source = torch.tensor(pad(rows))
        limit = length_limit(self._options, source.shape[1])
        with torch.inference_mode():
            found = self._model.generate(source, attention_mask=(source != PAD).long(), max_new_tokens=limit)
        return found.tolist()


def load_translators(
    spec: Spec, weights: Mapping[str, np.ndarray], engine: Engine, options: SearchOptions, threads: int, folder: Path
) -> dict[str, Translator]:
    """Return Hugging Face's model by the name of its runtime: `transformers`, and `optimum` if it is installed.

    The ONNX models are written into the new `folder`. Raises: SystemExit as `marian`, and without transformers.
    """
    torch.set_num_threads(threads)
    model = marian(spec, weights, positions=max(LONGEST, length_limit(options, LONGEST)))
    models = {"transformers": lambda: model, "optimum": lambda: onnx_model(model, threads, folder)}
    return {name: Translator(models[name](), engine, options) for name in installed()}


def installed() -> list[str]:
    """Return the names of the installed runtimes, and print a note on a missing one.

    Raises: SystemExit without transformers.
    """
    try:
        import_module("transformers")
    except ImportError as error:
        raise SystemExit(
            f"error: --hugging-face needs transformers: {error}\nhint: pip install --group peers"
        ) from error
    try:
        import_module("optimum.onnxruntime")
    except ImportError as error:
        print(f"note: without optimum-onnx ({error}); the group peers-onnx has it, for transformers 4", file=sys.stderr)
        return ["transformers"]
    return ["transformers", "optimum"]


def marian(spec: Spec, weights: Mapping[str, np.ndarray], positions: int) -> Any:
    """Return the MarianMTModel of a spec that extends transformer_base, for this number of positions.

    Raises: SystemExit for a spec that normalizes before a sublayer or has more than one embedding matrix, which Marian
    does not support.
    """
    if "encoder/final_norm/gain" in weights:
        raise SystemExit("error: Hugging Face's Marian normalizes after each sublayer; the spec must have norm: post")
    if weights.keys() & {"decoder/embed/embedding/weight", "logits/weight"}:
        raise SystemExit("error: Hugging Face's Marian has one embedding matrix; the spec must tie all three")
    transformers: Any = import_module("transformers")
    layers, heads, inner = (int(spec.sizes[name]) for name in ("layers", "heads", "d_ff"))
    pieces, width = weights[EMBEDDING].shape
    sides = {
        f"{side}_{name}": value
        for side in SIDES
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", inner))
    }
    config = transformers.MarianConfig(
        vocab_size=pieces,
        d_model=width,
        **sides,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=positions,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
    )
    model: Any = transformers.MarianMTModel(config).eval()
    arrays = dict(_arrays(weights, layers, positions))
    model.load_state_dict({name: torch.tensor(np.asarray(array, np.float32)) for name, array in arrays.items()})
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = EPSILON
    return model


def onnx_model(model: Any, threads: int, folder: Path) -> Any:
    """Export the model with its caches into the new `folder` with optimum, and load it in ONNX Runtime."""
    # The model in memory is exported: one loaded from a file would have Marian's own positions and epsilon.
    import_module("optimum.exporters.onnx").onnx_export_from_model(
        model, output=folder, task="text2text-generation-with-past", do_validation=False
    )
    session: Any = import_module("onnxruntime").SessionOptions()
    session.intra_op_num_threads = threads
    return import_module("optimum.onnxruntime").ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=session)


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return batches of indices of similar length, the longest first, of at most `budget` tokens or one item."""
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if found and (len(found[-1]) + 1) * lengths[found[-1][0]] <= budget:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def _arrays(weights: Mapping[str, np.ndarray], layers: int, positions: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield Marian's state dictionary from our weights by path."""
    pieces, width = weights[EMBEDDING].shape
    yield "model.shared.weight", weights[EMBEDDING]
    yield "lm_head.weight", weights[EMBEDDING]
    yield "final_logits_bias", np.zeros((1, pieces))
    for side in SIDES:
        yield f"model.{side}.embed_tokens.weight", weights[EMBEDDING]
        yield f"model.{side}.embed_positions.weight", sinusoids(positions, width)
        for index in range(layers):
            yield from _layer(weights, side, index)


def _layer(weights: Mapping[str, np.ndarray], side: str, index: int) -> Iterator[tuple[str, np.ndarray]]:
    theirs, ours = f"model.{side}.layers.{index}", f"{side}/{index}"
    for name, path in SIDES[side].items():
        for projection, own in PROJECTIONS.items():
            yield from _linear(f"{theirs}.{name}.{projection}", weights, f"{ours}/{path}/{own}")
        yield from _norm(f"{theirs}.{name}_layer_norm", weights, f"{ours}/{path}")
    for name, own in FEED_FORWARD.items():
        yield from _linear(f"{theirs}.{name}", weights, f"{ours}/feed_forward/{own}")
    yield from _norm(f"{theirs}.final_layer_norm", weights, f"{ours}/feed_forward")


def _linear(name: str, weights: Mapping[str, np.ndarray], path: str) -> Iterator[tuple[str, np.ndarray]]:
    bias = weights[f"{path}/bias"].reshape(-1)
    yield f"{name}.weight", weights[f"{path}/weight"].reshape(len(bias), -1)
    yield f"{name}.bias", bias


def _norm(name: str, weights: Mapping[str, np.ndarray], path: str) -> Iterator[tuple[str, np.ndarray]]:
    yield f"{name}.weight", weights[f"{path}/layer_norm/gain"]
    yield f"{name}.bias", weights[f"{path}/layer_norm/bias"]
