"""The perplexity of a language model's engine, by its scores of the tokens of given texts.

Engines without such scores, which are older ones and those for GPUs, are computed by the training graph in PyTorch.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xformc.compiler.spec import Spec, load_spec
from xformc.format.abilities import SCORES_TEXTS
from xformc.format.interfaces import PREFIX
from xformc.format.names import MODEL, SPEC
from xformc.format.reader import read_manifest
from xformc.runtime import Engine, load
from xformc.runtime.options import checked_integer
from xformc.runtime.rows import Row
from xformc.runtime.score import FIRST
from xformc.runtime.searching.translate import PROMPT
from xformc.runtime.text.texts import encode_text
from xformc.trainer.data.text_files import Texts
from xformc.trainer.scores.metrics import Measure, likelihood_measures

MOST_CONTEXT = 1 << 20
"""The longest window of a model without a last position."""


@dataclass(frozen=True)
class Windows:
    """How texts that are too long are read: in windows of `context` tokens, each `stride` tokens after the one before.

    A token is scored in the first window that has it. So the first window scores all of its tokens, and each later one
    the last `stride`, after at least `context - stride` others. None: `train.max_length` of the spec; and the context.
    """

    context: int | None = None
    stride: int | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is not the default."""
        return (self.context, self.stride) != (None, None)

    def resolved(self, spec: Spec, longest: int | None) -> tuple[int, int]:
        """Return both numbers, for a model with at most `longest` positions. Raises: UserError for wrong ones."""
        most = MOST_CONTEXT if longest is None else longest
        usual = min(spec.train.max_length, most)
        context = checked_integer("--context", self.context, usual, 1, most)
        return context, checked_integer("--stride", self.stride, context, 1, context)


def engine_perplexity(
    engine: Path, texts: Texts, threads: int | None = None, windows: Windows = Windows(), *, document: bool = False
) -> list[Measure]:
    """Return the perplexity and the bits per byte of the engine in this folder on the texts, with their end tokens.

    `document`: all texts are the lines of one.

    Raises: UserError if the engine has no tokenizer, or its model lacks parameters of its spec; for windows that are
    too long; and for windows of engines without scores of tokens.
    """
    manifest, spec = read_manifest(engine), load_spec(engine / SPEC)
    lines = texts.columns[manifest.written]
    size = sum(len(line.encode()) for line in lines)
    text = "text" if document else "text without line ends"
    if not manifest.can(SCORES_TEXTS):
        if windows.given or document:
            manifest.require(SCORES_TEXTS)
        return likelihood_measures(*_by_torch(engine, spec, texts), size, "by the training graph in PyTorch", text)
    context, stride = windows.resolved(spec, manifest.inputs[manifest.written].longest)
    loss, count = 0.0, 0
    with load(engine, threads=threads) as loaded:
        for one in loaded.score_rows(_parts(loaded, lines, context, stride)):
            loss, count = loss - math.fsum(one.token_scores), count + len(one.tokens)
    by = f"by the engine, in windows of {context:,} tokens, {stride:,} apart" if windows.given else "by the engine"
    return likelihood_measures(loss, count, size, by, text)


def _parts(engine: Engine, lines: Iterable[str], context: int, stride: int) -> Iterator[Row]:
    """Yield the rows of the windows of texts: what a window scores, and what it has before that."""
    name = engine.manifest.written
    encode = partial(engine.tokenizer_of(name).encode_alone, name)
    for number, line in enumerate(lines, start=1):
        ids = encode_text(number, line, encode)
        known = 0 if engine.manifest.inputs[name].special.begun else 1
        done = known
        while done < len(ids):
            end = min(len(ids), done + (context if done == known else stride))
            start = known if done == known else max(known, done + stride - context)
            first = {FIRST: np.array(ids[start - 1])} if start else {}
            yield {**first, PROMPT: np.array(ids[start:done], np.int64), PREFIX: np.array(ids[done:end], np.int64)}
            done = end


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
