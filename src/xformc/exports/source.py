"""What is exported: the spec, the weights and the files of a run, a checkpoint or an engine."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.spec import Spec, load_spec
from xformc.compiler.spec.tree import Plain, write_yaml
from xformc.compiler.weight_files import load_weights
from xformc.errors import UserError
from xformc.format.manifest import check_files
from xformc.format.names import IMPORTED, MANIFEST, MODEL, SPEC
from xformc.format.reader import read_manifest
from xformc.imports.config import MAX_BYTES
from xformc.imports.json_file import read_json
from xformc.specs import find_spec
from xformc.trainer.run_files import find_run, find_run_files

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    """A trained model. `tokenizers` by input, `labels` by result; `family` is that of an imported run."""

    folder: Path
    spec: Spec
    arrays: Mapping[str, Array]
    tokenizers: Mapping[str, Path]
    labels: Mapping[str, tuple[str, ...]]
    family: str | None = None


def read_source(path: Path) -> Source:
    """Read a run, one of its checkpoints, or an engine. Raises: UserError if it is none, or incomplete."""
    return _engine(path) if (path / MANIFEST).is_file() else _run(path)


def spec_of(filled: Plain) -> Spec:
    """The spec that a table writes. Raises: SpecError."""
    with tempfile.TemporaryDirectory(prefix="xformc-export-") as name:
        path = Path(name) / SPEC
        path.write_text(write_yaml(filled), encoding="utf-8")
        spec = load_spec(path)
        spec.graph()
        return spec


def _engine(folder: Path) -> Source:
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    if manifest.precision != "float32":
        hint = "export the run that it was built from"
        raise UserError(f"the engine's weights are rounded to {manifest.precision}", place=str(folder), hint=hint)
    spec = load_spec(folder / SPEC)
    files = {name: folder / file for name, file in manifest.tokenizers.items()}
    labels = {name: tuple(item.labels) for name, item in manifest.results.items() if item.labels}
    return Source(folder, spec, engine_parameters(spec.graph(), folder / MODEL), files, labels, _family(folder))


def _run(path: Path) -> Source:
    if not path.exists():
        raise UserError("no such file or folder", place=str(path))
    run = find_run(path)
    if run is None:
        raise UserError("is neither a run nor an engine: it has no spec", place=str(path))
    spec = load_spec(find_spec(run))
    files = find_run_files(path, spec)
    labels: dict[str, tuple[str, ...]] = {}
    if isinstance(files.labels, Mapping):
        labels = {name: tuple(names) for name, names in files.labels.items()}
    return Source(path, spec, load_weights(path, spec.graph()), files.tokenizers or {}, labels, _family(run))


def _family(run: Path) -> str | None:
    """The family that an imported run is of."""
    path = run / IMPORTED
    if not path.is_file():
        return None
    content = read_json(path, MAX_BYTES, "the record of an import", lambda content: content)
    found = cast(Mapping[str, object], content).get("family") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None
