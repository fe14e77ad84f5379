"""The perplexity of a language model's engine, by its scores of the tokens of given texts.

Engines without such scores, which are older ones and those for GPUs, are computed by the training graph in PyTorch.
"""

import math
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from xformc.compiler.spec import Spec, load_spec
from xformc.format.interfaces import PREFIX
from xformc.format.names import MODEL, SPEC
from xformc.format.reader import read_manifest
from xformc.runtime import Engine, load
from xformc.runtime.rows import Row
from xformc.runtime.score import FIRST
from xformc.runtime.texts import encode_text
from xformc.trainer.data.text_files import Texts
from xformc.trainer.scores.metrics import Measure, likelihood_measures


def engine_perplexity(engine: Path, texts: Texts, threads: int | None = None) -> list[Measure]:
    """Return the perplexity and the bits per byte of the engine in this folder on the texts, with their end tokens.

    A text with more than `train.max_length` tokens is cut, and each part is scored without those before it.

    Raises: UserError if the engine has no tokenizer, or its model lacks parameters of its spec.
    """
    manifest, spec = read_manifest(engine), load_spec(engine / SPEC)
    lines = texts.columns[manifest.written]
    size = sum(len(line.encode()) for line in lines)
    if not manifest.scores_texts:
        return likelihood_measures(*_by_torch(engine, spec, texts), size, "by the training graph in PyTorch")
    loss, count = 0.0, 0
    with load(engine, threads=threads) as loaded:
        for one in loaded.score_rows(_parts(loaded, lines, spec.train.max_length)):
            loss, count = loss - math.fsum(one.token_scores), count + len(one.tokens)
    return likelihood_measures(loss, count, size, "by the engine")


def _parts(engine: Engine, lines: Iterable[str], longest: int) -> Iterator[Row]:
    """Yield the rows of parts of texts, each after the last token of the one before."""
    name = engine.manifest.written
    encode = partial(engine.tokenizer_of(name).encode, name)
    for number, line in enumerate(lines, start=1):
        ids = encode_text(number, line, encode)
        known = 0 if engine.manifest.inputs[name].special.begun else 1
        for start in range(known, len(ids), longest):
            first = {FIRST: np.array(ids[start - 1])} if start else {}
            yield {**first, PREFIX: np.array(ids[start : start + longest], np.int64)}


def _by_torch(engine: Path, spec: Spec, texts: Texts) -> tuple[float, int]:
    """Return the negative log likelihood of the texts, and the number of their tokens."""
    from xformc.compiler.backends.torch.module import TorchModule  # noqa: PLC0415 (it brings PyTorch)
    from xformc.compiler.certify import engine_parameters  # noqa: PLC0415
    from xformc.compiler.pipeline import compile_training  # noqa: PLC0415
    from xformc.trainer.data.data_schema import data_schema  # noqa: PLC0415
    from xformc.trainer.data.text_examples import encode_texts, load_for  # noqa: PLC0415
    from xformc.trainer.hardware import choose_device  # noqa: PLC0415
    from xformc.trainer.loop import validation_loss  # noqa: PLC0415

    graph, schema = compile_training(spec).graph, data_schema(spec)
    examples = encode_texts(texts, schema, load_for(schema, spec.train.tokenizer, engine), ())
    model = TorchModule(graph)
    model.load_arrays(engine_parameters(graph, engine / MODEL))
    loss = validation_loss(model.to(choose_device()), examples, spec.train.batch_tokens, bfloat16=False)
    count = int(examples.labels.lengths().sum())
    return loss * count, count
