"""Finds the files of a run beside its weights: the tokenizers of its inputs, and the names of its labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from xformc.compiler.build import Labels
from xformc.compiler.results.kind import KINDS
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.names import IMPORTED, SPEC
from xformc.format.tasks import NAMED, TASKS
from xformc.runtime.text.lines import read_text_file
from xformc.trainer.data.label_names import label_files
from xformc.trainer.data.vocabulary import SUFFIXES, tokenizer_files

SAFETENSORS = ".safetensors"
"""The ending of a file of weights."""


@dataclass(frozen=True)
class RunFiles:
    """The tokenizer of each input of tokens, and the label names by id of each result that has them.

    Both are None without a run; `labels` is also None for tasks without labels. A run trained on arrays has no
    tokenizers. `record`: the record of an imported run.
    """

    tokenizers: Mapping[str, Path] | None = None
    labels: Labels | None = None
    record: Path | None = None


def find_run(path: Path) -> Path | None:
    """Return the run's folder, which has its spec, for a run, a checkpoint or a file of weights.

    Return None for other paths, such as the name of a spec.
    """
    if not path.is_dir() and path.suffix != SAFETENSORS:
        return None
    near, *above = _folders(path)
    if (near / SPEC).is_file():
        return path
    return next((folder for folder in above if (folder / SPEC).is_file()), None)


def find_run_files(weights: Path, spec: Spec) -> RunFiles:
    """Return the files of the run that `weights` belongs to: a run's folder, one of its checkpoints, or a file.

    Other folders above are not searched: what lies there is of something else. An imported run may lack tokenizers.

    Raises: UserError if they are neither beside the weights nor in their run.
    """
    run, folders = find_run(weights), run_folders(weights)
    record = None if run is None or not (run / IMPORTED).is_file() else run / IMPORTED
    labelled = [result.name for result in spec.results if result.kind == "labels"]
    labels = {name: _find_labels(folders, weights, file) for name, file in label_files(labelled).items()}
    tokenizers = _find_tokenizers(folders, spec)
    if tokenizers is None and record is None and spec.task in NAMED and TASKS[spec.task].writes:
        tokenizers = _no_tokenizers(weights, spec)
    return RunFiles(tokenizers or {}, labels or None, record)


def run_folders(weights: Path) -> tuple[Path, ...]:
    """Where the files that belong to `weights` lie: the folder that has them, and their run if there is one."""
    run, beside = find_run(weights), weights if weights.is_dir() else weights.parent
    return (beside,) if run is None or run == beside else (beside, run)


def _folders(weights: Path) -> tuple[Path, ...]:
    """Where the files of a run may be: the path itself and the three folders above."""
    near = weights.resolve()
    return (near, *list(near.parents)[:3])


def _find_tokenizers(folders: Sequence[Path], spec: Spec) -> dict[str, Path] | None:
    for folder in folders:
        for shared, suffix in product((True, False), SUFFIXES):
            names = tokenizer_files(_texts(spec), shared=shared)
            files = {name: (folder / file).with_suffix(suffix) for name, file in names.items()}
            if files and all(path.is_file() for path in files.values()):
                return files
    return None


def _no_tokenizers(weights: Path, spec: Spec) -> dict[str, Path]:
    (shared, *_), own = (tuple(tokenizer_files(_texts(spec), shared=one).values()) for one in (True, False))
    several = f", or {' and '.join(own)}," if len(own) > 1 else ""
    raise UserError(
        f"no {shared}{several} beside these weights",
        place=str(weights),
        hint="give the run's folder instead, or copy the run's tokenizer beside the file",
    )


def _find_labels(folders: Sequence[Path], weights: Path, file: str) -> list[str]:
    path = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if path is None:
        hint = f"give the run's folder instead, or copy its {file} beside the file"
        raise UserError(f"no {file} beside these weights", place=str(weights), hint=hint)
    return read_text_file(path)


def _texts(spec: Spec) -> tuple[str, ...]:
    spelled = [result.name for result in spec.results if KINDS[result.kind].tokenized]
    return (*(name for name, item in spec.inputs.items() if item.kind == "tokens"), *spelled)
