"""`xformc train` and `xformc average`: data in, weights out."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.collection import uncollected
from xformc.commands.options import OUT, Settings, SpecName
from xformc.errors import UserError
from xformc.format.names import SPEC
from xformc.specs import find_spec
from xformc.terminal import is_quiet, progress_console

DATA_HELP = """A folder with train.* and valid.*. Translation: .tsv, or one file per language. Language model: .txt.
Tagging and classification: .tsv or .npz. Text may be .gz or .zst."""
AVERAGE_HELP = "The file to write.  [default: RUN/average-LAST.safetensors]"

NPROC_HELP = "Train in N processes of this machine, one for each GPU."
SHARD_HELP = "Keep a part of each parameter in each process, for models that do not fit on one GPU."
LOG_HELP = "Also log the metrics to tensorboard, wandb or mlflow. May be repeated."
SWEEP_HELP = "Train with each of the settings in this YAML file, one after the other; see docs/training.md."
TOKENIZER_HELP = "The vocabulary of all texts, which is not trained then: a SentencePiece model or a tokenizer.json."
START_HELP = "Begin with the weights of this run, where paths and sizes fit, and with its tokenizers."


def train(
    spec: SpecName,
    *,
    data: Annotated[Path, Option(help=DATA_HELP, metavar="DIR")],
    output: Annotated[Path | None, Option(*OUT, help="The run's folder.  [default: runs/NAME]", metavar="RUN")] = None,
    languages: Annotated[
        str | None, Option(help="Source and target in the names of the files: en-de.", metavar="PAIR")
    ] = None,
    settings: Settings = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --output where it stopped.")] = False,
    minutes: Annotated[float | None, Option(help="Stop after this time, in place of the spec's.", metavar="M")] = None,
    seed: Annotated[
        int | None, Option(help="Random seed, in place of the spec's.", min=0, max=2**31 - 1, metavar="N")
    ] = None,
    start: Annotated[Path | None, Option(help=START_HELP, metavar="RUN")] = None,
    tokenizer: Annotated[Path | None, Option(help=TOKENIZER_HELP, metavar="FILE")] = None,
    compile_model: Annotated[bool, Option("--compile", help="Run the layers through torch.compile.")] = False,
    nproc: Annotated[int | None, Option(help=NPROC_HELP, min=1, max=1024, metavar="N")] = None,
    shard: Annotated[bool, Option("--shard", help=SHARD_HELP)] = False,
    log: Annotated[list[str] | None, Option(help=LOG_HELP, metavar="SINK")] = None,
    sweep: Annotated[Path | None, Option(help=SWEEP_HELP, metavar="GRID")] = None,
) -> None:
    """Train the model of a spec.

    \b
    xformc train specs/numbers.yaml --data demo/data -o demo/run
    xformc train transformer_base --data wmt --languages en-de -o runs/base --set train.steps=50000
    xformc train transformer_base --data wmt --languages en-de -o runs/base --resume
    xformc train text_classifier --data reviews -o runs/reviews
    xformc train tagger.yaml --data tags --start runs/masked -o runs/tagger
    xformc train transformer_base --data wmt --languages en-de -o runs/base --tokenizer wmt.model
    xformc train transformer_base --data wmt --languages en-de -o runs/base --nproc 8
    xformc train transformer_base --data wmt --languages en-de -o runs/rates --sweep rates.yaml --log tensorboard

    The spec's `train` section is the recipe. A run may be stopped or killed at any moment; --resume continues it to
    the bit. The result is RUN/weights.safetensors, the average of the last checkpoints. At the end the compiled engine
    is scored on the validation data.

    With --sweep, there is a run for each of the settings below --output, and a table of the results.
    """
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"--minutes must be more than 0, not {minutes:g}")
    if sweep is not None:
        begun = (start, tokenizer)
        words = _words(languages, minutes, seed, begun, log, nproc, compile_model=compile_model, shard=shard)
        out = output or Path("runs") / f"{Path(spec).stem}-sweep"
        return _sweep(spec, settings or [], sweep, ["--data", str(data), *words], out, (data, languages), resume=resume)
    if nproc is not None and _launch(nproc):
        return
    with uncollected():
        from xformc.compiler.spec import load_spec
        from xformc.trainer.processes import is_first
        from xformc.trainer.train import train as run_training

        import_module("torch._dynamo")  # which the optimizers of torch would import later
    loaded = load_spec(find_spec(spec), settings or ())
    result = run_training(
        loaded,
        data,
        output or _default_run(spec, loaded.name),
        languages=languages,
        resume=resume,
        minutes=minutes,
        seed=seed,
        start=start,
        tokenizer=tokenizer,
        compile=compile_model,
        shard=shard,
        log=log or (),
    )
    if is_first():
        print(result.weights)


def _words(
    languages: str | None,
    minutes: float | None,
    seed: int | None,
    begun: tuple[Path | None, Path | None],
    log: list[str] | None,
    nproc: int | None,
    *,
    compile_model: bool,
    shard: bool,
) -> list[str]:
    """The options of the runs of a sweep, as on the command line."""
    given = {"--languages": languages, "--minutes": minutes, "--seed": seed, "--nproc": nproc}
    given |= dict(zip(("--start", "--tokenizer"), begun, strict=True))
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    words += [word for one in log or () for word in ("--log", one)]
    return [*words, *(["--compile"] if compile_model else []), *(["--shard"] if shard else [])]


def _sweep(
    spec: str,
    settings: list[str],
    grid: Path,
    words: list[str],
    out: Path,
    data: tuple[Path, str | None],
    *,
    resume: bool,
) -> None:
    from xformc.compiler.spec import load_spec, settings_of
    from xformc.trainer.opening import hash_data
    from xformc.trainer.run import check_free
    from xformc.trainer.sweep import Settings, check_begun, read_grid, table, text_of
    from xformc.trainer.sweep import sweep as run_sweep

    every = read_grid(grid)
    for one in every:  # a mistake in the last of them is found before the first is trained
        try:
            load_spec(find_spec(spec), [*settings, *settings_of(one)])
        except UserError as error:
            raise UserError(f"{text_of(one)}: {error}", place=str(grid)) from error
    if not resume:
        check_free(out)
    loaded = load_spec(find_spec(spec), settings)
    check_begun(out, loaded.resolved_yaml(), hash_data(loaded, *data), [*settings, *words])

    def command(one: Settings, run: Path) -> list[str]:
        sets = [word for setting in (*settings, *settings_of(one)) for word in ("--set", setting)]
        quiet = ["--quiet"] if is_quiet() else []
        return [sys.executable, "-m", "xformc", "train", spec, *words, *sets, "-o", str(run), "--resume", *quiet]

    console = progress_console()
    results = run_sweep(every, command, out, lambda text: console.print(text, highlight=False, soft_wrap=True))
    print("\n".join(table(results)))
    failed = sum(one.state == "failed" for one in results)
    if failed:
        hint = "their messages are above; --resume tries them again"
        raise UserError(f"{failed} of {len(results)} trainings failed", place=str(out), hint=hint)


def _launch(count: int) -> bool:
    """Start this command in `count` processes and wait for them, unless it is one of them or `count` is 1."""
    from xformc.trainer.launch import STARTED, launch
    from xformc.trainer.parent import end_with_parent

    if os.environ.get(STARTED):
        end_with_parent()
        return False
    if "WORLD_SIZE" in os.environ:
        raise UserError("--nproc starts the processes itself", hint="leave it out under torchrun")
    if count > 1:
        launch(count, sys.argv[1:])
    return count > 1


def _default_run(spec: str, name: str) -> Path:
    """The run that the spec was given as, else runs/NAME."""
    return Path(spec) if (Path(spec) / SPEC).is_file() else Path("runs") / name


def average(
    run: Annotated[Path, Argument(help="A run: a folder made by `xformc train`.", metavar="RUN")],
    *,
    last: Annotated[
        int | None,
        Option(help="Number of checkpoints, the newest ones.  [default: 5, or all if fewer]", min=1, metavar="N"),
    ] = None,
    output: Annotated[Path | None, Option(*OUT, help=AVERAGE_HELP, metavar="FILE")] = None,
) -> None:
    """Average the last checkpoints of a run.

    \b
    xformc average runs/base --last 8 -o runs/base/average-8.safetensors
    xformc build runs/base/average-8.safetensors -o engines/base

    The average usually translates better than a single checkpoint (Vaswani et al. 2017, section 6.1).
    """
    from xformc.trainer.average import average_last
    from xformc.trainer.checkpoint import list_checkpoints

    if last is None:
        last = max(1, min(5, len(list_checkpoints(run))))
    written, steps = average_last(run, last, output or run / f"average-{last}.safetensors")
    print(f"{written}: the average of steps {', '.join(map(str, steps))}")
