"""Checks an engine without PyTorch: its files, its model's interface, and batch invariance."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc import __version__
from xformc.errors import UserError
from xformc.format.certificate import CERTIFICATE_BYTES, Certificate, Stage, read_certificate
from xformc.format.document import read_document
from xformc.format.manifest import Manifest
from xformc.format.names import CERTIFICATE
from xformc.runtime.checks.workload import random_workload
from xformc.runtime.engine import Engine, load
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.predict import expected_outputs
from xformc.runtime.rows import Row, stack
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.searching.translate import sample_rows, search_rows

BATCH_BOUND = 1e-4
"""The bound of the certificate's stage `batch`."""

COUNT = 5
"""The number of random examples to run."""

Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The tokens of one example, and its scores or probabilities."""


def check_engine(folder: Path, progress: Callable[[str], None] = lambda _: None) -> tuple[Certificate, list[str]]:
    """Check the files of an engine, its model's interface, and that results do not depend on the batch.

    Returns the stages that were checked, and the names of the recorded stages that were not.

    Raises: UserError if the engine is incomplete, or its certificate did not pass.
    """
    progress("verify: files")
    with load(folder) as engine:
        recorded = read_certificate(read_document(folder / CERTIFICATE, limit=CERTIFICATE_BYTES))
        if not recorded.passed:
            raise UserError("the engine's certificate did not pass", place=str(folder))
        manifest = engine.manifest
        progress("verify: batch")
        stages = (  # loading has checked the first two, and would have raised
            Stage("files", f"size and sha256 of {len(manifest.files)} files", 0, 0),
            Stage("model", "inputs and outputs of the model", 0, 0),
            Stage("batch", "the same examples alone and in a batch", _batch(engine), BATCH_BOUND),
        )
    versions = {"xformc": __version__, "onnxruntime": str(onnx_runtime().__version__)}
    certificate = Certificate(stages, datetime.now(UTC).isoformat(timespec="seconds"), versions)
    repeated = {stage.name for stage in stages}
    return certificate, [stage.name for stage in recorded.stages if stage.name not in repeated]


def _batch(engine: Engine) -> float:
    """Return the largest difference between the results of examples in one batch, in reverse order, and alone."""
    items = random_workload(engine, {}, COUNT).items
    together, backwards = _run(engine, items), _run(engine, items[::-1])[::-1]
    alone = [found for item in items for found in _run(engine, [item])]
    return max(
        _between(first, second) for others in (backwards, alone) for first, second in zip(together, others, strict=True)
    )


def _run(engine: Engine, items: Sequence[Any]) -> list[Found]:
    manifest, session = engine.manifest, engine.session
    if manifest.decoding == "search":
        options = manifest.search
        short = replace(options, n_best=options.beam_size, max_length_factor=0.5)
        found = search_rows(session, items, manifest, short)
        return [(_tokens(found, row), scores) for row, scores in enumerate(found.scores)]
    if manifest.decoding == "sample":
        found = sample_rows(session, items, manifest, replace(manifest.sampling, max_new_tokens=16))
        return [(_tokens(found, row), scores) for row, scores in enumerate(found.scores)]
    feeds = stack(manifest.inputs, items)
    outputs = session.run(feeds, expected_outputs(manifest.results, feeds))
    return [_joined(manifest, outputs, items, index) for index in range(len(items))]


def _tokens(found: SearchResult, row: int) -> NDArray[np.int64]:
    """Return the tokens of all texts of a row, one text after the other."""
    return np.concatenate([np.array(found.text(row, rank), np.int64) for rank in range(found.lengths.shape[1])])


def _joined(manifest: Manifest, outputs: Sequence[NDArray[Any]], items: Sequence[Row], index: int) -> Found:
    """Return the tokens and the numbers of all results of one example, without padding, as two vectors."""
    along = [result.positions for result in manifest.results.values() for _ in result.outputs]
    parts = [
        array[index] if name is None else array[index, : len(items[index][name])]
        for array, name in zip(outputs, along, strict=True)
    ]
    flat = [part.reshape(-1) for part in parts]
    tokens = [part[part != 0] for part in flat if part.dtype == np.int64]
    numbers = [part for part in flat if part.dtype == np.float32]
    return np.concatenate([np.zeros(0, np.int64), *tokens]), np.concatenate([np.zeros(0, np.float32), *numbers])


def _between(first: Found, second: Found) -> float:
    if not np.array_equal(first[0], second[0]) or first[1].shape != second[1].shape:
        return float("inf")
    differences = np.abs(first[1] - second[1])[first[1] != second[1]]
    return float(differences.max(initial=0.0))
