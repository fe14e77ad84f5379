"""Attention maps of an engine: rebuilds its graph with its weights and runs it on an example."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.explain.attention.attention_maps import AttentionMap, attention_maps
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.format.names import MODEL, SPEC
from xformc.format.tasks import NAMED
from xformc.runtime import Engine, load
from xformc.runtime.arrays import read_rows
from xformc.runtime.media.reader import read_file, suffixes_of
from xformc.runtime.predict import encode_example
from xformc.runtime.rows import Array, stack
from xformc.runtime.text.texts import encode_line, whole_limit
from xformc.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Looked:
    """The attention maps of an engine for an example.

    `tokens` has the tokens of each text input. `writer` is the input that is decoded, if any; `written` are the tokens
    that follow each of its positions.
    """

    name: str
    texts: tuple[str, ...]
    maps: tuple[AttentionMap, ...]
    tokens: Mapping[str, tuple[str, ...]]
    writer: str | None
    written: tuple[str, ...]


def look(folder: Path, texts: Sequence[str], target: str | None) -> Looked:
    """The maps of the engine in `folder` for a text, or for one text per input; that of a sound or an image is a path.

    `target` is the translation to show; None translates with the engine. Raises: UserError for an engine that needs
    other inputs, or has no tokenizer or no attention weights, and for texts that do not fit its inputs.
    """
    engine = load(folder)
    tokenizer, manifest = _tokenizer(engine), engine.manifest
    task, given, writer = manifest.task, manifest.given, writer_of(manifest)
    if target is not None and (writer is None or not given):
        raise UserError(f"{engine.manifest.name} is a {task} engine, which has no target", hint="remove --translation")
    if writer is None:
        row = encode_example(
            1, list(texts), inputs=manifest.inputs, words=manifest.labels_words, tokenizer=tokenizer, truncate=False
        )
        return _look(engine, folder, tuple(texts), row, ())
    read = list(given) or [writer]
    if len(texts) != len(read):
        count = "one text" if len(read) == 1 else f"a text for each of {', '.join(read)}"
        raise UserError(f"{task} takes {count}, found {len(texts)}", hint="quote the text")
    row = {name: _read(engine, tokenizer, name, text) for name, text in zip(read, texts, strict=True)}
    if not given:
        return _look_at_written(engine, folder, texts, {}, row[writer].tolist())
    if target is not None:
        wanted = _read(engine, tokenizer, writer, target).tolist()
        return _look_at_written(engine, folder, (*texts, target), row, wanted)
    best = engine.translate(texts)[0][0] if task == "translation" else engine.transcribe_rows([row])[0][0]
    return _look_at_written(engine, folder, (*texts, best.text), row, best.tokens)


def _look_at_written(
    engine: Engine, folder: Path, texts: Sequence[str], row: Mapping[str, Any], written: Sequence[int]
) -> Looked:
    """The maps for an example with this text, whose ids are `written`."""
    special = engine.session.vocabularies.written
    ids = [*written] or [special.last]
    return _look(engine, folder, tuple(texts), {**row, engine.manifest.written: [*special.begun, *ids[:-1]]}, ids)


def look_at_arrays(folder: Path, arrays: Mapping[str, Any], number: int) -> Looked:
    """The maps of the engine in `folder` for example `number` of `arrays`, counted from 1.

    Raises: UserError for arrays that do not fit its inputs or a missing example; as `look`.
    """
    engine = load(folder)
    manifest, writer = engine.manifest, writer_of(engine.manifest)
    if writer is not None and manifest.task in NAMED:
        raise UserError(f"{manifest.name} is a {manifest.task} engine, which needs text")
    rows = read_rows(manifest.given, arrays, manifest.targets)
    if not 1 <= number <= len(rows):
        raise UserError(f"there is no example {number}, only {len(rows)}")
    row, shown = rows[number - 1], f"example {number}"
    if writer is None:
        return _look(engine, folder, (shown,), row, ())
    best = engine.transcribe_rows([row])[0][0]
    return _look_at_written(engine, folder, (shown, best.text), row, best.tokens)


def writer_of(manifest: Manifest) -> str | None:
    """The input that the engine writes, or None."""
    return None if manifest.decoding == "forward" else manifest.written


def _tokenizer(engine: Engine) -> Tokenizer | None:
    """The tokenizer of the texts; None if the engine reads and writes none."""
    inputs = engine.manifest.inputs
    others = [name for name, item in inputs.items() if item.kind != "tokens" and not suffixes_of(item)]
    if others:
        message = f"the engine {engine.manifest.name} takes more than text: it needs {', '.join(others)}"
        raise UserError(message, hint="pass arrays: --input FILE.npz")
    if engine.tokenizer is None and any(item.kind == "tokens" for item in inputs.values()):
        message = f"the engine {engine.manifest.name} has no tokenizer: it was built without a training run"
        raise UserError(message, hint="build it from a run: xformc build RUN -o ENGINE")
    return engine.tokenizer


def _read(engine: Engine, tokenizer: Tokenizer | None, name: str, text: str) -> Array:
    """The ids of a text, with the end token if it has one, or what is in the file of this name.

    Raises: UserError if the text is empty or too long; as `read_file`.
    """
    given = engine.manifest.inputs[name]
    if given.kind != "tokens":
        return read_file(Path(text), name, given)
    assert tokenizer is not None
    limit = whole_limit(given.longest)
    ids = encode_line(1, text, encode=partial(tokenizer.encode, name), limit=limit, truncate=False)
    if len(ids) == int(given.special.ends):
        raise UserError(f"the {name} is empty")
    return np.array(ids, np.int64)


def _look(
    engine: Engine, folder: Path, texts: tuple[str, ...], row: Mapping[str, Any], written: Sequence[int]
) -> Looked:
    """The maps for one example: `row` has an array per input; `written` are the ids that follow the writer's."""
    inputs, tokenizer = engine.manifest.inputs, engine.tokenizer
    program = begin(load_spec(folder / SPEC), engine.manifest.target)
    graph = run_passes(program, after="inference", without=("share", "fuse", "hoist")).graph
    feeds = stack(inputs, [{name: np.asarray(array) for name, array in row.items()}])
    tensors = [torch.tensor(feeds[value.name]) for value in graph.inputs]
    maps = attention_maps(graph, engine_parameters(graph, folder / MODEL), tensors)
    readable = [name for name, item in inputs.items() if item.kind == "tokens"]
    pieces = {name: _pieces(tokenizer, name, row[name]) for name in readable}
    writer = writer_of(engine.manifest)
    return Looked(
        engine.manifest.name, texts, tuple(maps), pieces, writer, _pieces(tokenizer, writer, written) if writer else ()
    )


def _pieces(tokenizer: Tokenizer | None, name: str, ids: Sequence[int]) -> tuple[str, ...]:
    if tokenizer is None or name not in tokenizer.vocabularies:
        return tuple(str(int(one)) for one in ids)
    return _shown(tokenizer.pieces(name, [int(one) for one in ids]))


def _shown(pieces: Sequence[str]) -> tuple[str, ...]:
    """Format tokens for display: a token that continues a word gets a leading dot."""
    return tuple(
        piece[1:] or "\N{OPEN BOX}"
        if piece.startswith("\N{LOWER ONE EIGHTH BLOCK}")
        else piece
        if piece.startswith("<") and piece.endswith(">")
        else f"\N{MIDDLE DOT}{piece}"
        for piece in pieces
    )
