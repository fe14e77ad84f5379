"""What an engine is built from: a spec, a run, or several runs as one model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.compiler.spec import Spec, load_spec
from xformc.compiler.spec.ensemble import join
from xformc.compiler.weight_files import Array, load_weights
from xformc.errors import UserError
from xformc.format.names import SPEC
from xformc.specs import find_spec
from xformc.trainer.run_files import SAFETENSORS, RunFiles, find_run, find_run_files


@dataclass(frozen=True)
class Source:
    """What an engine is built from: a spec, its weights by name or where they are, and the files of its run.

    Without `files`, they are those beside the weights.
    """

    spec: Spec
    weights: Path | Mapping[str, Array] | None
    files: RunFiles | None = None


def find_source(source: Path, settings: Sequence[str] = (), weights: Path | None = None) -> Source:
    """Find a run, one of its checkpoints, or a spec, which has no weights; `weights` take the place of its own.

    Weights outside of any run have the files of the source. Raises: UserError if the source is neither.
    """
    run = find_run(source)
    if run is None and source.suffix == SAFETENSORS and source.is_file():
        hint = f"name the run that they are of: xformc build RUN --weights {source}"
        raise UserError("are weights outside of a run, so their spec is not known", place=str(source), hint=hint)
    spec = load_spec(find_spec(source if run is None else run), settings)
    if weights is None:
        return Source(spec, None if run is None else source)
    return Source(
        spec, weights, find_run_files(source, spec) if run is not None and find_run(weights) is None else None
    )


def join_runs(sources: Sequence[Path], settings: Sequence[str] = ()) -> Source:
    """Read runs, or checkpoints of them, as one model, which decodes as the first unless the settings say otherwise.

    Raises: UserError for a source that is no run, and for runs with other tokenizers or labels than the first;
        SpecError for specs that have no mean.
    """
    runs = [_run(source) for source in sources]
    specs = [load_spec(run / SPEC) for run in runs]
    spec = join(specs, specs[0].name, settings)
    files = [find_run_files(source, one) for source, one in zip(sources, specs, strict=True)]
    for source, one in zip(sources[1:], files[1:], strict=True):
        _check_same(sources[0], files[0], source, one)
    weights = {
        f"{number}/{name}": array
        for number, (source, one) in enumerate(zip(sources, specs, strict=True), 1)
        for name, array in load_weights(source, one.graph()).items()
    }
    return Source(spec, weights, files[0])


def _run(source: Path) -> Path:
    run = find_run(source)
    if run is None:
        raise UserError("is not a run: an ensemble is built from several runs", place=str(source))
    return run


def _check_same(first: Path, wanted: RunFiles, other: Path, found: RunFiles) -> None:
    """Raises: UserError for two runs with other tokenizers or labels."""
    what = "labels" if found.labels != wanted.labels else ""
    if _contents(found) != _contents(wanted):
        what = "tokenizer"
    if what:
        hint = "train the members on the same data, or with --start, which brings the tokenizers of a run"
        raise UserError(f"has another {what} than {first}, so they have no mean", place=str(other), hint=hint)


def _contents(files: RunFiles) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in (files.tokenizers or {}).items()}
