"""`xformc train` and `xformc average`: data in, weights out."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.spec_path import SpecName, find_spec
from xformc.errors import UserError

DATA_HELP = """A folder with train.* and valid.*. Translation: .tsv, or a file a language. Language model: .txt.
Tagging and classification: .tsv or .npz. Text may be .gz."""
AVERAGE_HELP = "The file to write; RUN/average-LAST.safetensors if left out."


def train(
    spec: SpecName,
    *,
    data: Annotated[Path, Option(help=DATA_HELP)],
    out: Annotated[Path | None, Option(help="The run's folder; runs/NAME if left out.")] = None,
    languages: Annotated[str | None, Option(help="Source and target, as in the file names: en-de.")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    minutes: Annotated[float | None, Option(help="Stop after so long, in place of the spec's.")] = None,
    seed: Annotated[int | None, Option(help="The seed, in place of the spec's.", min=0, max=2**31 - 1)] = None,
    compile_model: Annotated[bool, Option("--compile", help="Run through torch.compile.")] = False,
) -> None:
    """Train a spec's model on the data of its task.

    \b
    xformc train specs/numbers.yaml --data demo/data --out demo/run
    xformc train transformer_base --data wmt --languages en-de --out runs/base
    xformc train transformer_base --data wmt --languages en-de --out runs/base --resume
    xformc train text_classifier --data reviews --out runs/reviews

    The recipe is the spec's `train` section. A run may be stopped at any moment, even killed; --resume
    continues it to the bit. Its result, whose name is printed, is OUT/weights.safetensors, the average of the
    last checkpoints; at the end it is scored on the validation data, by the compiled engine.
    """
    from xformc.compiler.spec import load_spec
    from xformc.trainer.train import train as run_training

    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"--minutes must be more than 0, not {minutes:g}")
    loaded = load_spec(find_spec(spec))
    result = run_training(
        loaded,
        data,
        out or Path("runs") / loaded.name,
        languages=languages,
        resume=resume,
        minutes=minutes,
        seed=seed,
        compile=compile_model,
    )
    print(result.weights)


def average(
    run: Annotated[Path, Argument(help="A run: the folder that `xformc train` wrote.", metavar="RUN")],
    *,
    last: Annotated[int, Option(help="How many of the newest checkpoints.", min=1)] = 5,
    out: Annotated[Path | None, Option(help=AVERAGE_HELP)] = None,
) -> None:
    """Average the last checkpoints of a run.

    \b
    xformc average runs/base --last 8 --out runs/base/average-8.safetensors
    xformc build transformer_base --weights runs/base/average-8.safetensors --out engines/base

    The average usually translates better than any one of them (section 6.1 of the paper).
    """
    from xformc.trainer.average import average_last

    written, steps = average_last(run, last, out or run / f"average-{last}.safetensors")
    print(f"{written}: the average of steps {', '.join(map(str, steps))}")
