"""The engine: it translates, continues or labels text and arrays. The search itself is inside its ONNX model."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES
from functools import partial
from pathlib import Path

from xformc.errors import UserError
from xformc.format.manifest import Manifest, check_files
from xformc.format.names import MANIFEST
from xformc.format.reader import read_manifest
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.kinds.kind import check_kinds
from xformc.runtime.library import check_operators
from xformc.runtime.methods.predicting import Predicting
from xformc.runtime.methods.scoring import Scoring
from xformc.runtime.methods.serving import Serving
from xformc.runtime.methods.transcribing import Transcribing
from xformc.runtime.session import AGAIN
from xformc.runtime.sessions import open_session
from xformc.runtime.stream import Batching
from xformc.runtime.text.tokenizer import load_tokenizer


class Engine(Scoring, Transcribing, Serving, Predicting):
    """A loaded engine, made by `load`. It keeps no state between calls and may be shared between threads.

    Its task decides what it can do: `translate` for translation, `generate` for language_model, `predict` for tagging
    and classification. An engine of a spec that declares its results has `transcribe` if it writes text, otherwise
    `predict`. Use it as a context manager, or call `close`, to free the model's memory.
    """


def load(
    directory: Path | str,
    *,
    threads: int | None = None,
    workers: int = 1,
    verify_hashes: bool = True,
    device: DeviceName | None = None,
) -> Engine:
    """Load the engine in a folder.

    threads: cores to use. None: all.
    workers: batches run at the same time, which share the cores. 1 has the lowest latency, one per core the highest
        throughput. A call may ask for another number; the model is then opened once more for that number.
    verify_hashes: compare the sha256 of every file; without it only their sizes.
    device: "cpu" or "cuda". None: where engines of its target belong. On a GPU one batch runs at a time, `threads` has
        no effect, and more workers only overlap the reading and writing of text.

    Raises: UserError that says what is wrong with the folder or a file in it.
    """
    folder = Path(directory)
    Batching(workers)
    with _readable(folder):
        manifest = read_manifest(folder)
        check_operators(folder, manifest)
        check_kinds(manifest.results, str(folder / MANIFEST))
        check_files(folder, manifest, verify_hashes=verify_hashes)
    folder = folder.resolve()  # where a link leads now, from wherever the process goes: other models are opened later
    session = open_session(
        folder,
        manifest.inputs,
        manifest.results,
        target=manifest.target,
        decoding=manifest.decoding,
        threads=threads,
        workers=workers,
        device=device,
        plans=manifest.plans,
        files=manifest.files,
        require_unchanged=partial(_require_unchanged, folder, manifest),
    )
    return Engine(manifest, load_tokenizer(folder, manifest), session)


@contextmanager
def _readable(folder: Path) -> Generator[None]:
    """Name the file of the folder that the system does not let this process read. Raises: UserError."""
    try:
        yield
    except OSError as error:
        hint = "let the user of this process read the engine's folder and files" if error.errno == EACCES else None
        place = str(folder) if error.filename is None else os.fsdecode(error.filename)
        raise UserError(f"cannot be read: {error.strerror or error}", place=place, hint=hint) from error


def _require_unchanged(folder: Path, manifest: Manifest) -> None:
    """Check that the folder has the engine that was loaded from it. Raises: UserError."""
    with _readable(folder):
        if read_manifest(folder) != manifest:
            raise UserError("the engine in this folder has changed since it was loaded", place=str(folder), hint=AGAIN)
        check_files(folder, manifest, verify_hashes=False)
