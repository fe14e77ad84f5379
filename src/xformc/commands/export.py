"""`xformc export`: an engine for a server, or a model for another library."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from xformc.commands.options import OUT
from xformc.errors import UserError
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions, recorded
from xformc.format.reader import read_manifest
from xformc.format.search_options import Setting
from xformc.runtime.generation.sampling import resolve_sample_options
from xformc.runtime.options import resolve_options
from xformc.terminal import progress_console

KIND_HELP = """triton: models for Triton Inference Server. hf: a folder that Hugging Face's transformers loads.
ct2: a model of CTranslate2. safetensors: the weights. onnx: the forward pass, without a search."""
SOURCE_HELP = "An engine; for all but triton also a run or one of its checkpoints."
OUTPUT_HELP = "The new folder; for triton the model repository to write into."
FAMILY_HELP = "hf: the family, such as llama.  [default: that of an imported run, or the one that fits]"
MAP_HELP = "hf: the table of a family of your own."
PRECISION_HELP = """hf, ct2, safetensors: number format of the weights; int8 and int16 for ct2 only.
[default: float32]"""
REPLAY_HELP = "hf: load the folder with transformers, and refuse if the logits differ."
LICENCE_HELP = "hf: the identifier of the licence, for the model card: apache-2.0."
NAME_HELP = "triton: the name of the model.  [default: the engine's]"
OPTION_HELP = "triton: fix an option of the search or of sampling: beam_size=4. May be repeated."
BATCH_HELP = "triton: largest batch.  [default: 64]"
INSTANCES_HELP = "triton: batches run at the same time on each device.  [default: 1]"
LONGEST_HELP = """triton, for targets cuda and tensorrt: the longest source in tokens, which bounds the output's
capacity.  [default: 256]"""
RUNTIME_HELP = "triton: run the engine with xformc's runtime in Triton's Python backend."

Kind = Literal["triton", "hf", "ct2", "safetensors", "onnx"]
Format = Literal["float32", "float16", "bfloat16", "int8", "int16"]


def export(
    kind: Annotated[Kind, Argument(help=KIND_HELP, metavar="triton|hf|ct2|safetensors|onnx")],
    source: Annotated[Path, Argument(help=SOURCE_HELP, metavar="ENGINE|RUN")],
    *,
    output: Annotated[Path, Option(*OUT, help=OUTPUT_HELP, metavar="DIR")],
    family: Annotated[str | None, Option(help=FAMILY_HELP, metavar="NAME")] = None,
    table: Annotated[Path | None, Option("--map", help=MAP_HELP, metavar="FILE")] = None,
    precision: Annotated[Format | None, Option(help=PRECISION_HELP, metavar="FORMAT")] = None,
    compare: Annotated[bool, Option("--replay", help=REPLAY_HELP)] = False,
    licence: Annotated[str | None, Option(help=LICENCE_HELP, metavar="ID")] = None,
    name: Annotated[str | None, Option(help=NAME_HELP, metavar="NAME")] = None,
    option: Annotated[list[str] | None, Option(help=OPTION_HELP, metavar="NAME=VALUE")] = None,
    max_batch_size: Annotated[int | None, Option(help=BATCH_HELP, min=1, metavar="N")] = None,
    instances: Annotated[int | None, Option(help=INSTANCES_HELP, min=1, metavar="N")] = None,
    longest: Annotated[int | None, Option(help=LONGEST_HELP, min=1, metavar="N")] = None,
    runtime: Annotated[bool, Option("--runtime", help=RUNTIME_HELP)] = False,
) -> None:
    """Export an engine for Triton Inference Server, or a model for other libraries.

    \b
    xformc export triton demo/engine -o models
    xformc export triton demo/engine -o models --option beam_size=8 --option n_best=3
    xformc export hf runs/gpt2 -o models/gpt2 --replay
    xformc export ct2 runs/wmt -o models/wmt --precision int8
    xformc export onnx runs/wmt -o models/forward

    triton writes two models: NAME takes and returns token ids (or arrays, for labels), and NAME_text, if the engine has
    tokenizers, takes and returns text. Clients send `source`, `prompt` and `seed`, or the inputs of the spec. Options
    are fixed to the values given here, or to the engine's defaults. An earlier export of the same name is replaced;
    other models of the repository stay. docs/gpu.md says which of Triton's backends run which engines.

    hf writes config.json, safetensors and the tokenizer, by the tables of docs/import.md. What a model computes and the
    family cannot say is an error, all of it at once.

    ct2 writes Transformers for translation and language models, and needs the package ctranslate2.

    safetensors writes the weights by the spec's names, and onnx the forward pass in ONNX's own operators, for searches
    of one's own; both with the spec and the tokenizers. An engine has the search inside, and is ONNX already.
    """
    given = {
        "hf": {"family": family, "map": table, "replay": compare, "licence": licence},
        "triton": {
            "name": name,
            "option": option,
            "max-batch-size": max_batch_size,
            "instances": instances,
            "longest": longest,
            "runtime": runtime,
        },
    }
    foreign = [f"--{key}" for of, options in given.items() if of != kind for key, value in options.items() if value]
    if precision and kind in ("triton", "onnx"):
        foreign.append("--precision")
    if foreign:
        raise UserError(f"{', '.join(foreign)}: not an option of {kind}", hint="xformc export --help")
    if kind == "triton":
        _triton(source, output, option or [], name, (max_batch_size or 64, instances or 1, longest or 256), runtime)
        return
    if kind == "ct2":
        _ct2(source, output, precision)
        return
    if kind == "onnx":
        _onnx(source, output)
        return
    if precision in ("int8", "int16"):
        raise UserError(f"--precision {precision}: {kind} stores float32, float16 or bfloat16")
    if kind == "safetensors":
        _safetensors(source, output, precision or "float32")
        return
    from xformc.exports.hugging_face import export_hugging_face

    with progress_console().status("exporting"):
        done = export_hugging_face(
            source,
            output,
            family=family,
            table=table,
            precision=precision or "float32",
            compare=compare,
            licence=licence,
        )
    print(f"{output}: a model of the family {done.family}, {done.parameters:,} parameters")
    for line in (*([f"with {', '.join(done.files)}"] if done.files else []), *done.notes):
        print(f"  {line}")
    if done.replay is not None:
        print(f"  {done.replay.line()}")


def _safetensors(source: Path, output: Path, precision: Literal["float32", "float16", "bfloat16"]) -> None:
    from xformc.exports.plain import export_safetensors

    count = export_safetensors(source, output, precision)
    print(f"{output}: {count:,} parameters by the names of the spec")


def _onnx(source: Path, output: Path) -> None:
    from xformc.exports.plain import export_onnx

    given, names = export_onnx(source, output)
    print(f"{output}: a model from {', '.join(given)} to {', '.join(names)}")


def _ct2(
    source: Path, output: Path, precision: Literal["float32", "float16", "bfloat16", "int8", "int16"] | None
) -> None:
    from xformc.exports.ctranslate2 import export_ctranslate2

    with progress_console().status("exporting"):
        count = export_ctranslate2(source, output, None if precision == "float32" else precision)
    print(f"{output}: a model of CTranslate2, {count:,} parameters")


def _triton(
    engine: Path, output: Path, option: list[str], name: str | None, sizes: tuple[int, int, int], runtime: bool
) -> None:
    from xformc.triton.repository import Serving, export_repository

    options = _resolve(read_manifest(engine), option)
    for folder in export_repository(engine, output, Serving(options, name, *sizes, runtime)):
        print(folder)


def _resolve(manifest: Manifest, given: list[str]) -> SearchOptions | SampleOptions | None:
    """The engine's options with those that are given. Raises: UserError for one that there is not, or out of range."""
    defaults = manifest.defaults
    values = {} if defaults is None else recorded(defaults)
    chosen: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in values:
            there = f"there are {', '.join(values)}" if values else f"{manifest.task} has no options"
            raise UserError(f"--option: no option is called {name!r}", hint=there)
        chosen[name] = _parse(name, value, values[name])
    if isinstance(defaults, SearchOptions):
        return resolve_options(manifest, chosen)  # pyright: ignore[reportArgumentType]
    return None if defaults is None else resolve_sample_options(manifest, chosen)  # pyright: ignore[reportArgumentType]


def _parse(name: str, value: str, default: Setting) -> Setting:
    """Read a value of the type of the default."""
    try:
        if isinstance(default, tuple):
            return tuple(int(one) for one in value.split(",") if one)
        return type(default)(value)
    except ValueError as error:
        number = "an integer" if isinstance(default, int) else "a number"
        what = "ids between commas" if isinstance(default, tuple) else number
        raise UserError(f"--option {name}: {value!r} is not {what}") from error
