"""`xformc build` and `xformc verify`: the spec and its weights become an engine that is proved right."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from xformc.commands.engine_text import refusals
from xformc.commands.spec_path import SpecName, find_spec
from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.format.precision import WORDS, PrecisionWord
from xformc.format.reader import read_manifest
from xformc.format.targets import Target

WEIGHTS_HELP = "A run, one of its checkpoints, or a .safetensors file; fresh weights if left out."
TARGET_HELP = """portable: standard ONNX only; cpu: ONNX Runtime's own operators too; native: xformc's own too
(see xformc kernels); cuda: for a GPU, by ONNX Runtime; tensorrt: for a GPU, by TensorRT."""
PRECISION_HELP = "Weight precision, unless the spec sets it.  [default: float32]"
PROFILE_HELP = """Target tensorrt: the sizes of axes, where those that follow from the spec do not fit, such as
batch=1:32:128,source=1:32:256 (least:often:most) or beam=4."""
BUILDER_HELP = "Target tensorrt: tensorrt or tensorrt_rtx; the one that is installed if left out."
CALIBRATE_HELP = """Target tensorrt: examples like those of training, which say how products with int8 and fp8 weights
round what they are given: SOURCE and REFERENCE for a translation, else one file."""
COMPARE_HELP = """Translate SOURCE, and require that rounding costs at most 0.3 BLEU against REFERENCE."""


def build(
    spec: SpecName,
    beside: Annotated[Path | None, Argument(help="The second file of --calibrate.", metavar="REFERENCE")] = None,
    *,
    weights: Annotated[Path | None, Option(help=WEIGHTS_HELP)] = None,
    target: Annotated[Target, Option(help=TARGET_HELP)] = "portable",
    precision: Annotated[PrecisionWord | None, Option(help=PRECISION_HELP)] = None,
    calibrate: Annotated[Path | None, Option(help=CALIBRATE_HELP, metavar="SOURCE [REFERENCE]")] = None,
    compare: Annotated[tuple[Path, Path] | None, Option(help=COMPARE_HELP, metavar="SOURCE REFERENCE")] = None,
    profile: Annotated[str | None, Option(help=PROFILE_HELP, metavar="AXIS=SIZES,..")] = None,
    builder: Annotated[str | None, Option(help=BUILDER_HELP)] = None,
    out: Annotated[Path | None, Option(help="The engine's folder; engines/NAME if left out.")] = None,
) -> None:
    """Compile a spec into an engine, and prove it right.

    \b
    xformc build specs/numbers.yaml --weights demo/run --out demo/engine
    xformc build transformer_big --target cpu                 with fresh weights, to see its speed
    xformc build SPEC --weights RUN --precision int8 --compare valid.en valid.de
    xformc build SPEC --weights RUN --target tensorrt --precision fp8 --calibrate valid.en valid.de

    The proof, the certificate, shows that the engine computes the same function as the PyTorch module, and
    that its search is right. A build that cannot show it fails, names the first node that differs, and writes
    nothing.
    """
    from xformc.compiler.spec import load_spec
    from xformc.trainer.build_run import BuildOptions, build_run

    loaded = load_spec(find_spec(spec))
    if calibrate is None and beside is not None:
        raise UserError(f"unexpected: {beside}", hint="xformc build --help")
    examples = [path for path in (calibrate, beside) if path is not None]
    number_format = None if precision is None else WORDS[precision]
    options = BuildOptions(target, number_format, examples, compare, profile, builder)
    folder = out or Path("engines") / loaded.name
    with Console(stderr=True).status("building") as status:
        certificate = build_run(loaded, weights, folder, options, status.update)
    print(f"{folder}: built, and its certificate passed")
    for line in refusals(read_manifest(folder)):
        print(f"  {line}")
    for line in certificate.lines():
        print(f"  {line}")


def verify(engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")]) -> None:
    """Repeat the proof of an engine's certificate here.

    \b
    xformc verify demo/engine

    The exit code is 2 if a stage misses its bound.
    """
    from xformc.compiler.certify import verify_engine

    with Console(stderr=True).status("verifying") as status:
        certificate = verify_engine(engine, status.update)
    for line in certificate.lines():
        print(line)
    if not certificate.passed:
        raise UserError("the engine is not the function of its spec", place=str(engine))
