"""`xformc build` and `xformc verify`: the spec and its weights become an engine that is proved right."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from xformc.commands.check import SPEC_HELP
from xformc.commands.inspect_engine import refusals
from xformc.commands.spec_path import find_spec
from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.format.names import LABELS, MANIFEST, TOKENIZER
from xformc.format.precision import WORDS, Word
from xformc.format.reader import read_manifest
from xformc.runtime.lines import read_text_file

if TYPE_CHECKING:
    from xformc.compiler.build import Rounding
    from xformc.compiler.certify import Stage
    from xformc.compiler.spec import Spec

WEIGHTS_HELP = "A run, one of its checkpoints, or a .safetensors file; fresh weights if left out."


class Target(StrEnum):
    """Which operators an engine may use."""

    portable = "portable"
    cpu = "cpu"
    native = "native"
    cuda = "cuda"
    tensorrt = "tensorrt"


TARGET_HELP = """portable: standard ONNX only; cpu: ONNX Runtime's own operators too; native: xformc's own too
(see xformc kernels); cuda: for a GPU, by ONNX Runtime; tensorrt: for a GPU, by TensorRT."""
PRECISION_HELP = "In which numbers weights are stored, where the spec says nothing else; fp32 if neither says any."
PROFILE_HELP = """Target tensorrt: the sizes of axes, where those that follow from the spec do not fit, such as
batch=1:32:128,source=1:32:256 (least:often:most) or beam=4."""
BUILDER_HELP = "Target tensorrt: tensorrt or tensorrt_rtx; the one that is installed if left out."
CALIBRATE_HELP = """Target tensorrt: examples like those of training, which say how products with int8 and fp8 weights
round what they are given: SOURCE and REFERENCE for a translation, else one file."""
COMPARE_HELP = """Translate SOURCE, and require that rounding costs at most 0.3 BLEU against REFERENCE."""


def build(
    spec: Annotated[str, Argument(help=SPEC_HELP, metavar="SPEC")],
    beside: Annotated[Path | None, Argument(help="The second file of --calibrate.", metavar="REFERENCE")] = None,
    *,
    weights: Annotated[Path | None, Option(help=WEIGHTS_HELP)] = None,
    target: Annotated[Target, Option(help=TARGET_HELP)] = Target.portable,
    precision: Annotated[Word | None, Option(help=PRECISION_HELP)] = None,
    calibrate: Annotated[Path | None, Option(help=CALIBRATE_HELP, metavar="SOURCE [REFERENCE]")] = None,
    compare: Annotated[tuple[Path, Path] | None, Option(help=COMPARE_HELP, metavar="SOURCE REFERENCE")] = None,
    profile: Annotated[str | None, Option(help=PROFILE_HELP, metavar="AXIS=SIZES,..")] = None,
    builder: Annotated[str | None, Option(help=BUILDER_HELP)] = None,
    out: Annotated[Path | None, Option(help="The engine's folder; engines/NAME if left out.")] = None,
    stop_after: Annotated[
        str | None, Option(help="Print the graph after this pass, and build nothing.", metavar="PASS")
    ] = None,
) -> None:
    """Compile a spec into an engine, and prove it right.

    \b
    xformc build specs/numbers.yaml --weights demo/run --out demo/engine
    xformc build transformer_big --target cpu                 with fresh weights, to see its speed
    xformc build SPEC --weights RUN --precision int8 --compare valid.en valid.de
    xformc build SPEC --weights RUN --target tensorrt --precision fp8 --calibrate valid.en valid.de
    xformc build transformer_base --stop-after step           print the derived step graph

    The proof, the certificate, shows that the engine computes the same function as the PyTorch module, and
    that its search is right. A build that cannot show it fails, names the first node that differs, and writes
    nothing.
    """
    from xformc.compiler import compile_spec
    from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
    from xformc.compiler.build import Rounding, build_engine
    from xformc.compiler.pipeline import print_stage
    from xformc.compiler.spec import load_spec
    from xformc.compiler.spec.tasks import TASKS
    from xformc.compiler.weight_files import load_weights

    loaded = load_spec(find_spec(spec))
    if stop_after is not None:
        print(print_stage(loaded, stop_after))
        return
    folder = out or Path("engines") / loaded.name
    _check_replaceable(folder)
    trained = None if weights is None else load_weights(weights, compile_spec(loaded))
    labelled = TASKS[loaded.task].time is None
    tokenizers = None if weights is None else _find_tokenizers(weights, loaded, labelled=labelled)
    labels = _find_labels(weights) if labelled and weights is not None else None
    rounding = Rounding(None if precision is None else WORDS[precision])
    if calibrate is not None:
        from xformc.trainer.data.calibration import calibration_examples

        files = [calibrate] if beside is None else [calibrate, beside]
        rounding = replace(rounding, examples=calibration_examples(files, loaded, tokenizers, labels))
    elif beside is not None:
        raise UserError(f"unexpected: {beside}", hint="xformc build --help")
    plans = PlanOptions(profile, builder) if target == Target.tensorrt else None
    if plans is None and (profile, builder) != (None, None):
        raise UserError("--profile and --builder are of --target tensorrt")
    if compare is not None:
        rounding = replace(rounding, judge=_make_judge(compare, loaded, rounding, trained=trained is not None))
    with Console(stderr=True).status("building") as status:
        certificate = build_engine(
            loaded,
            trained,
            tokenizers,
            target.value,
            folder,
            status.update,
            labels=labels,
            rounding=rounding,
            plans=plans,
        )
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


def _make_judge(
    paths: tuple[Path, Path], spec: "Spec", rounding: "Rounding", *, trained: bool
) -> "Callable[[Path, Path], Stage]":
    """What compares the engine with float32. Raises: UserError where there is nothing to compare."""
    if spec.task != "translation" or not trained:
        what = "fresh weights translate nothing" if spec.task == "translation" else f"{spec.task} is no translation"
        raise UserError(f"--compare: BLEU is of trained translations, and {what}")
    if set(spec.precisions(rounding.precision).values()) <= {"float32"}:
        raise UserError("--compare: no weight is rounded", hint="give --precision, such as int8")
    from xformc.commands.compare import bleu_judge

    return bleu_judge(paths)


def _check_replaceable(folder: Path) -> None:
    """Raises: UserError if `folder` holds anything but an engine, which a build would then destroy."""
    if not folder.exists() or (folder / MANIFEST).is_file():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise UserError("exists, and is not an engine", place=str(folder), hint="give --out a new folder")


def _find_tokenizers(weights: Path, spec: "Spec", *, labelled: bool) -> dict[str, Path]:
    """Input of tokens -> SentencePiece model of the run that `weights` (a run, a checkpoint or a file) belongs to.

    A task that gives labels may have been trained on arrays, without a tokenizer.
    """
    texts = [name for name, item in spec.inputs.items() if item.kind == "tokens"]
    for folder in _near(weights):
        shared = folder / TOKENIZER
        if shared.is_file():
            return dict.fromkeys(texts, shared)
        own = {name: folder / f"{name}.model" for name in texts}
        if own and all(path.is_file() for path in own.values()):
            return own
    if labelled:
        return {}
    raise UserError(
        f"no tokenizer.model, or {' and '.join(f'{name}.model' for name in texts)}, beside these weights",
        place=str(weights),
        hint="give --weights the run's folder, or copy the run's tokenizer beside the file",
    )


def _find_labels(weights: Path) -> list[str]:
    """The names of the labels in the run that `weights` belongs to, by id."""
    path = next((folder / LABELS for folder in _near(weights) if (folder / LABELS).is_file()), None)
    if path is None:
        hint = f"give --weights the run's folder, or copy its {LABELS} beside the file"
        raise UserError(f"no {LABELS} beside these weights", place=str(weights), hint=hint)
    return read_text_file(path)


def _near(weights: Path) -> list[Path]:
    """The folders in which a run's other files are looked for, the nearest first."""
    near = weights.resolve()
    return [near, *list(near.parents)[:3]]
