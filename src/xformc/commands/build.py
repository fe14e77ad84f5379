"""`xformc build` and `xformc verify`: a run becomes an engine, and its certificate is checked."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from xformc.commands.engine_text import refusals
from xformc.commands.options import (
    OUT,
    CachesName,
    EngineFolder,
    Json,
    PrecisionName,
    Settings,
    TargetName,
    complete_spec,
)
from xformc.errors import UserError
from xformc.format.names import MANIFEST
from xformc.format.precision import number_format
from xformc.format.reader import read_manifest
from xformc.runtime.checks.agreement import RuntimeName
from xformc.runtime.library import choose_target
from xformc.terminal import LOGGER, progress_console
from xformc.verification import verify_parts

if TYPE_CHECKING:
    from xformc.trainer.source import Source

SOURCE_HELP = """A run, one of its checkpoints, or a spec (a file, or the name of a shipped one). Several runs of one
vocabulary become an ensemble, which averages their probabilities."""
WEIGHTS_HELP = """A run, a checkpoint or a .safetensors file, which outside of a run has the tokenizers of RUN.
[default: the run's; for a spec, randomly initialized weights]"""
RUNTIME_HELP = "python, or cpp: compare libxformc, the C++ library, with the Python runtime."
PROFILE_HELP = """For --target tensorrt: sizes of axes as least:often:most, in place of those that follow from the spec:
batch=1:32:128,source=1:32:256 or beam=4."""
BUILDER_HELP = "For --target tensorrt: tensorrt or tensorrt_rtx.  [default: the one that is installed]"
CALIBRATE_HELP = """For --target tensorrt with int8 or float8: a file of examples from which the scales of activations
are computed. Repeat it for a translation: source, then reference."""
SHORTLIST_HELP = "For translation: a file of `xformc shortlist`, to write only tokens that it names for the source."
COMPARE_HELP = """A test set as for `xformc evaluate`, to fail if quantization costs more than 0.3 BLEU, or as little of
another score. Repeat it for a translation: source, then reference."""


def build(
    sources: Annotated[list[str], Argument(help=SOURCE_HELP, metavar="RUN|SPEC..", autocompletion=complete_spec)],
    *,
    output: Annotated[
        Path | None, Option(*OUT, help="The engine's folder.  [default: engines/NAME]", metavar="ENGINE")
    ] = None,
    weights: Annotated[Path | None, Option(help=WEIGHTS_HELP, metavar="PATH")] = None,
    target: TargetName = "auto",
    precision: PrecisionName = None,
    caches: CachesName = None,
    settings: Settings = None,
    calibrate: Annotated[list[Path] | None, Option(help=CALIBRATE_HELP, metavar="FILE")] = None,
    compare: Annotated[list[Path] | None, Option(help=COMPARE_HELP, metavar="FILE")] = None,
    profile: Annotated[str | None, Option(help=PROFILE_HELP, metavar="AXIS=SIZES,..")] = None,
    builder: Annotated[str | None, Option(help=BUILDER_HELP, metavar="NAME")] = None,
    shortlist: Annotated[Path | None, Option(help=SHORTLIST_HELP, metavar="FILE")] = None,
) -> None:
    """Compile a run into an engine, and check that both compute the same function.

    \b
    xformc build demo/run -o demo/engine
    xformc build RUN_1 RUN_2 RUN_3 -o ensemble
    xformc build RUN --target cpu                             runs with ONNX Runtime alone, but slower
    xformc build transformer_big                              random weights, to measure its speed
    xformc build RUN --precision int8 --compare valid.en --compare valid.de
    xformc build RUN --precision int8 --caches int8           half the memory of keys and values
    xformc build RUN --target tensorrt --precision float8 --calibrate valid.en --calibrate valid.de

    The checks are recorded in the engine's certificate: the engine and the PyTorch module agree within bounds, and so
    do the search and its definition. If a check fails, the build names the first node that differs, and writes nothing.
    """
    from xformc.trainer.build_run import BuildOptions, build_run

    for source in sources:
        if (Path(source) / MANIFEST).is_file():
            hint = "give the run or the spec that it was built from"
            raise UserError("is an engine, not a run", place=source, hint=hint)
    found = _source(sources, settings or (), weights)
    chosen, reason = choose_target(target)
    options = BuildOptions(
        chosen, number_format(precision), calibrate or (), compare or (), profile, builder, caches, shortlist
    )
    folder = output or Path("engines") / found.spec.name
    with progress_console().status("building") as status:
        certificate = build_run(found.spec, found.weights, folder, options, status.update, files=found.files)
    if reason is not None:
        LOGGER.warning(reason)
    print(f"{folder}: built, and its certificate passed")
    for line in refusals(read_manifest(folder)):
        print(f"  {line}")
    for line in certificate.lines():
        print(f"  {line}")


def _source(sources: Sequence[str], settings: Sequence[str], weights: Path | None) -> "Source":
    """Return what is built. Raises: UserError for weights beside several runs."""
    from xformc.trainer.source import find_source, join_runs

    if len(sources) > 1:
        if weights is not None:
            raise UserError(
                "--weights is for one model", hint="give a checkpoint of each run instead: xformc build A B"
            )
        return join_runs([Path(source) for source in sources], settings)
    return find_source(Path(sources[0]), settings, weights)


def verify(
    engine: EngineFolder,
    runtime: Annotated[RuntimeName, Option(help=RUNTIME_HELP, metavar="RUNTIME")] = "python",
    *,
    as_json: Json = False,
) -> None:
    """Repeat the checks of an engine's certificate on this machine.

    \b
    xformc verify demo/engine
    xformc verify demo/engine --runtime cpp               the same tokens, texts and score bits through libxformc
    xformc verify demo/engine --json                      one object, as certificate.json has it

    Without PyTorch it checks what needs the engine alone: the files, the model's inputs and outputs, and that results
    do not depend on the batch. The exit code is 2 if a check fails.
    """
    with progress_console().status("verifying") as status:
        certificate, left_out = verify_parts(engine, status.update, runtime)
    if as_json:
        print(json.dumps({**certificate.fields(), "note": left_out}))
    else:
        print("\n".join(certificate.lines()))
    if not certificate.passed:
        differ = "the runtimes differ" if runtime == "cpp" else "the engine does not compute the function of its spec"
        raise UserError(differ, place=str(engine))
    if left_out and not as_json:
        print(left_out)
