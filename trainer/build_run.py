"""Building an engine from a run or a spec: find and read the files of the run and of the options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.backends.torch.named_arrays import named_arrays
from xformc.compiler.build import Rounding, build_program
from xformc.compiler.certify import Certificate
from xformc.compiler.graph.graph import Graph
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import Spec
from xformc.compiler.weight_files import check_arrays, load_weights
from xformc.errors import UserError
from xformc.format.names import MANIFEST
from xformc.format.precision import Caches, Precision
from xformc.format.targets import TRAITS, Target
from xformc.trainer.data.calibration_examples import calibration_examples
from xformc.trainer.run_files import RunFiles, find_run_files
from xformc.trainer.scores.rounding_cost import check_comparable, loss_judge


@dataclass(frozen=True)
class BuildOptions:
    """How an engine is built.

    precision: number format of the weights, unless the spec sets it; None: the spec's default.
    calibrate: files of examples to calibrate int8 and float8 matrix products with.
    compare: a test set as `xformc evaluate` reads it, to compare the scores with those of float32.
    caches: how the keys and values that a step reads are stored; None: the spec's choice.
    shortlist: a file of the tokens among which the search looks.
    profile, builder: of TensorRT's plans; None: the profile that follows from the spec, and the builder installed.
    """

    target: Target
    precision: Precision | None = None
    calibrate: Sequence[Path] = ()
    compare: Sequence[Path] = ()
    profile: str | None = None
    builder: str | None = None
    caches: Caches | None = None
    shortlist: Path | None = None


def build_run(
    spec: Spec,
    weights: Path | nn.Module | Mapping[str, Any] | None,
    out: Path,
    options: BuildOptions,
    progress: Callable[[str], None] = lambda _: None,
    *,
    files: RunFiles | None = None,
) -> Certificate:
    """Build an engine into `out`, from a run, one of its checkpoints or a file of weights; a module or its state_dict.

    Without `weights` they are randomly initialized. `files` are the tokenizers and labels; None: those of the run.

    Raises: UserError if `out` holds anything but an engine, for options that do not fit each other, for files that do
    not fit the task, and as `build_program`.
    """
    _check_replaceable(out)
    program = compile_engine(spec, options.target)
    trained = None if weights is None else _load(weights, spec.graph())
    if files is None:
        files = find_run_files(weights, spec) if isinstance(weights, Path) else RunFiles()
    rounding = Rounding(options.precision, caches=options.caches)
    if options.calibrate:
        examples = calibration_examples(options.calibrate, spec, files.tokenizers, files.labels)
        rounding = replace(rounding, examples=examples)
    plans = _plan_options(options)
    if options.compare:
        check_comparable(spec, options.precision, options.caches, trained=trained is not None)
        rounding = replace(rounding, judge=loss_judge(options.compare))
    return build_program(
        program,
        trained,
        files.tokenizers,
        out,
        progress,
        labels=files.labels,
        rounding=rounding,
        plans=plans,
        record=files.record,
        shortlist=options.shortlist,
    )


def _load(weights: Path | nn.Module | Mapping[str, Any], graph: Graph) -> Mapping[str, Any]:
    if isinstance(weights, Path):
        return load_weights(weights, graph)
    if not isinstance(weights, nn.Module | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        found = type(weights).__name__
        raise UserError(f"weights are a path, a module or a state_dict, found {found}")
    arrays = named_arrays(weights)
    check_arrays(arrays, graph, "weights")
    return arrays


def _check_replaceable(folder: Path) -> None:
    """Raises: UserError if `folder` holds anything but an engine, which a build would then destroy."""
    if not folder.exists() or (folder / MANIFEST).is_file():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise UserError("exists, and is not an engine", place=str(folder), hint="give --output a new folder")


def _plan_options(options: BuildOptions) -> PlanOptions | None:
    if TRAITS[options.target].plans:
        return PlanOptions(options.profile, options.builder)
    if (options.profile, options.builder) != (None, None):
        raise UserError("--profile and --builder need --target tensorrt")
    return None
