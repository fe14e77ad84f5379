"""`xformc export`: what a server needs to run an engine."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.options import resolve_options
from xformc.runtime.sampling import resolve_sample_options

TRITON_HELP = "The model repository of Triton Inference Server to write into."
OPTION_HELP = "An option of the search or of sampling, which is then fixed: beam_size=4. May be repeated."
BATCH_HELP = "The most rows that Triton puts together into one batch."
LONGEST_HELP = "Targets cuda and tensorrt: there is room for the output of a source of so many tokens."
RUNTIME_HELP = "Run the engine by xformc's runtime, in Triton's Python backend."


def export(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    triton: Annotated[Path, Option(help=TRITON_HELP, metavar="DIR")],
    name: Annotated[str | None, Option(help="The name of the model; the engine's if left out.")] = None,
    option: Annotated[list[str] | None, Option(help=OPTION_HELP, metavar="NAME=VALUE")] = None,
    max_batch_size: Annotated[int, Option(help=BATCH_HELP, min=1)] = 64,
    instances: Annotated[int, Option(help="How many batches run at once, on each device.", min=1)] = 1,
    longest: Annotated[int, Option(help=LONGEST_HELP, min=1)] = 256,
    runtime: Annotated[bool, Option("--runtime", help=RUNTIME_HELP)] = False,
) -> None:
    """Write an engine as models that Triton Inference Server serves.

    \b
    xformc export demo/engine --triton models
    xformc export demo/engine --triton models --option beam_size=8 --option n_best=3

    Two models are written into the repository: NAME takes and gives token ids, or the arrays of a task that gives
    labels; NAME_text takes and gives text, where the engine has tokenizers. Clients send `source`, `prompt` and
    `seed`, or the inputs of the spec; the options have the values given here, else the engine's defaults. An
    earlier export of the same name is replaced; other models of the repository stay as they are.

    Which of Triton's backends run which engines, and what they must have installed: docs/gpu.md.
    """
    from xformc.triton.repository import Serving, export_repository

    options = _resolve(read_manifest(engine), option or [])
    serving = Serving(options, name, max_batch_size, instances, longest, runtime)
    for folder in export_repository(engine, triton, serving):
        print(folder)


def _resolve(manifest: Manifest, given: list[str]) -> SearchOptions | SampleOptions | None:
    """The engine's options with those that are given. Raises: UserError for one that there is not, or out of range."""
    defaults = manifest.defaults
    values: dict[str, int | float] = {} if defaults is None else asdict(defaults)
    known = {name: type(value) for name, value in values.items()}
    chosen: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            there = f"there are {', '.join(known)}" if known else f"{manifest.task} has no options"
            raise UserError(f"--option: no option is called {name!r}", hint=there)
        chosen[name] = _parse(name, value, known[name])
    if isinstance(defaults, SearchOptions):
        return resolve_options(manifest, chosen)  # pyright: ignore[reportArgumentType]
    return None if defaults is None else resolve_sample_options(defaults, chosen)  # pyright: ignore[reportArgumentType]


def _parse(name: str, value: str, kind: type[int | float]) -> int | float:
    try:
        return kind(value)
    except ValueError as error:
        what = "an integer" if kind is int else "a number"
        raise UserError(f"--option {name}: {value!r} is not {what}") from error
