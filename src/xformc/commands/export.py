"""`xformc export`: what a server needs to run an engine."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from xformc.commands.options import OUT, EngineFolder
from xformc.errors import UserError
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions, recorded
from xformc.format.reader import read_manifest
from xformc.runtime.options import resolve_options
from xformc.runtime.sampling import resolve_sample_options

OUTPUT_HELP = "The model repository to write into."
OPTION_HELP = "Fix an option of the search or of sampling: beam_size=4. May be repeated."
BATCH_HELP = "Largest batch that Triton may form."
LONGEST_HELP = "For targets cuda and tensorrt: the longest source in tokens, which bounds the output's capacity."
RUNTIME_HELP = "Run the engine with xformc's runtime in Triton's Python backend."


def export(
    engine: EngineFolder,
    *,
    output: Annotated[Path, Option(*OUT, help=OUTPUT_HELP, metavar="DIR")],
    format: Annotated[
        Literal["triton"], Option(help="triton: models for Triton Inference Server.", metavar="FORMAT")
    ] = "triton",
    name: Annotated[str | None, Option(help="The name of the model.  [default: the engine's]", metavar="NAME")] = None,
    option: Annotated[list[str] | None, Option(help=OPTION_HELP, metavar="NAME=VALUE")] = None,
    max_batch_size: Annotated[int, Option(help=BATCH_HELP, min=1, metavar="N")] = 64,
    instances: Annotated[int, Option(help="Batches run at the same time on each device.", min=1, metavar="N")] = 1,
    longest: Annotated[int, Option(help=LONGEST_HELP, min=1, metavar="N")] = 256,
    runtime: Annotated[bool, Option("--runtime", help=RUNTIME_HELP)] = False,
) -> None:
    """Export an engine as models for Triton Inference Server.

    \b
    xformc export demo/engine --format triton -o models
    xformc export demo/engine --format triton -o models --option beam_size=8 --option n_best=3

    Two models are written: NAME takes and returns token ids (or arrays, for labels), and NAME_text, if the engine has
    tokenizers, takes and returns text. Clients send `source`, `prompt` and `seed`, or the inputs of the spec. Options
    are fixed to the values given here, or to the engine's defaults. An earlier export of the same name is replaced;
    other models of the repository stay.

    docs/gpu.md says which of Triton's backends run which engines, and what they need.
    """
    from xformc.triton.repository import Serving, export_repository

    options = _resolve(read_manifest(engine), option or [])
    serving = Serving(options, name, max_batch_size, instances, longest, runtime)
    for folder in export_repository(engine, output, serving):
        print(folder)


def _resolve(manifest: Manifest, given: list[str]) -> SearchOptions | SampleOptions | None:
    """The engine's options with those that are given. Raises: UserError for one that there is not, or out of range."""
    defaults = manifest.defaults
    values = {} if defaults is None else recorded(defaults)
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


def _parse(name: str, value: str, kind: type[int | float | str]) -> int | float | str:
    try:
        return kind(value)
    except ValueError as error:
        what = "an integer" if kind is int else "a number"
        raise UserError(f"--option {name}: {value!r} is not {what}") from error
