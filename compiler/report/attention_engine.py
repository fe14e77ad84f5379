"""What an engine attends to: its graph rebuilt with its weights, and texts as its inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from xformc.compiler.backends.initializers import MODEL
from xformc.compiler.certify.certify import SPEC, engine_parameters
from xformc.compiler.report.attention_maps import AttentionMap, attention_maps
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.predict import encode_example
from xformc.runtime.texts import encode_line
from xformc.runtime.tokenizer import Tokenizer
from xformc.tokens import BEGIN

WRITERS = {"translation": "target", "language_model": "text"}
"""The input that a task writes token by token: at each position the model says what comes next."""


@dataclass(frozen=True)
class Looked:
    """The maps of an engine for texts.

    `tokens` has the pieces of each input; at the positions of the input `writer`, if there is one, the pieces
    `written` come next.
    """

    name: str
    texts: tuple[str, ...]
    maps: tuple[AttentionMap, ...]
    tokens: Mapping[str, tuple[str, ...]]
    writer: str | None
    written: tuple[str, ...]


def look(folder: Path, texts: Sequence[str], target: str | None) -> Looked:
    """The maps of the engine in `folder` for a text, or for one text for each of its inputs.

    `target` is the translation that is looked at, the engine's own if it is None. Raises: UserError for an engine that
    takes more than text, or has no tokenizer or no attention weights, and for texts that do not fit its inputs.
    """
    engine = load(folder)
    tokenizer, task = _tokenizer(engine), engine.manifest.task
    if target is not None and task != "translation":
        raise UserError(f"{engine.manifest.name} is a model of {task}, which has no target", hint="leave it out")
    if task in WRITERS and len(texts) != 1:
        raise UserError(f"{task} takes one text, found {len(texts)}", hint="put it in quotes")
    if task == "translation":
        best = target if target is not None else engine.translate(list(texts))[0][0].text
        texts, ids = (texts[0], best), {"source": _ids(engine, tokenizer, "source", texts[0])}
        ids["target"] = _ids(engine, tokenizer, "target", best)
    elif task == "language_model":
        ids = {"text": _ids(engine, tokenizer, "text", texts[0])}
    else:
        row = encode_example(1, list(texts), manifest=engine.manifest, tokenizer=tokenizer, truncate=False)
        ids = {name: [int(one) for one in array] for name, array in row.items()}
    return _look(engine, folder, tuple(texts), ids)


def _tokenizer(engine: Engine) -> Tokenizer:
    if engine.tokenizer is None or any(item.kind != "tokens" for item in engine.manifest.inputs.values()):
        raise UserError(
            f"the engine {engine.manifest.name} does not read text alone",
            hint="attention is shown for engines whose inputs are tokens, built from a trained run",
        )
    return engine.tokenizer


def _ids(engine: Engine, tokenizer: Tokenizer, name: str, text: str) -> list[int]:
    """The ids of a text, with the end token. Raises: UserError where it is empty, or too long for the model."""
    longest = engine.manifest.inputs[name].longest
    ids = encode_line(1, text, encode=partial(tokenizer.encode, name), longest=longest, truncate=False)
    if len(ids) == 1:
        raise UserError(f"the {name} has no words")
    return ids


def _look(engine: Engine, folder: Path, texts: tuple[str, ...], ids: Mapping[str, list[int]]) -> Looked:
    tokenizer, writer = engine.tokenizer, WRITERS.get(engine.manifest.task)
    assert tokenizer is not None
    read = {name: [BEGIN, *row[:-1]] if name == writer else row for name, row in ids.items()}
    graph = load_spec(folder / SPEC).graph()
    inputs = [torch.tensor([read[value.name]]) for value in graph.inputs]
    maps = attention_maps(graph, engine_parameters(graph, folder / MODEL), inputs)
    pieces = {name: _shown(tokenizer.pieces(name, row)) for name, row in read.items()}
    written = _shown(tokenizer.pieces(writer, ids[writer])) if writer else ()
    return Looked(engine.manifest.name, texts, tuple(maps), pieces, writer, written)


def _shown(pieces: Sequence[str]) -> tuple[str, ...]:
    """Pieces for a reader: what begins a word stands alone, what goes on with one has a dot before it."""
    return tuple(
        piece[1:] or "\N{OPEN BOX}"
        if piece.startswith("\N{LOWER ONE EIGHTH BLOCK}")
        else piece
        if piece.startswith("<") and piece.endswith(">")
        else f"\N{MIDDLE DOT}{piece}"
        for piece in pieces
    )
