"""`xformc distill`: an engine's translations or texts become training data."""

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.progress import Progress, TaskID
from typer import Argument, Option

from xformc.commands.decoding import BeamSize, LengthPenalty, NewTokens, Temperature, TopK, TopP
from xformc.commands.options import OUT, Device, EngineFolder
from xformc.commands.work_bar import dropped_text, text_size, work_bar
from xformc.errors import UserError
from xformc.format.reader import read_manifest
from xformc.format.targets import TRAITS
from xformc.runtime.stream import MAX_BATCH_TOKENS

if TYPE_CHECKING:
    from xformc.trainer.distill.bulk import Distilled

TEXT_HELP = "Files of text in one language, plain, .gz or .zst: a sentence or a prompt in each line."
N_BEST_HELP = "Translations of each line; each becomes a pair."
BACK_HELP = "The text is in the target language: its translations become the sources, and the text the targets."
TAG_HELP = "What each source begins with, such as '<BT>'; a space is put behind it."
VALID_HELP = "A folder with valid.*, which becomes the validation data."
SAMPLES_HELP = "Texts sampled for each line, in place of a search.  [default of a language model: 1]"
WORKERS_HELP = "Processes; each loads the engine.  [default: all cores, 1 on a GPU; with --ray those of the cluster]"
RAY_HELP = "Decode on the machines of the Ray cluster at RAY_ADDRESS, which have the engine at the same path."


def distill(
    engine: EngineFolder,
    text: Annotated[list[Path], Argument(help=TEXT_HELP, metavar="TEXT...")],
    *,
    output: Annotated[Path, Option(*OUT, help="The folder to write into.", metavar="DATA")],
    beam_size: BeamSize = None,
    n_best: Annotated[int | None, Option(help=N_BEST_HELP, metavar="N")] = None,
    length_penalty: LengthPenalty = None,
    back_translation: Annotated[bool, Option("--back-translation", help=BACK_HELP)] = False,
    tag: Annotated[str | None, Option(help=TAG_HELP, metavar="TEXT")] = None,
    samples: Annotated[int | None, Option(help=SAMPLES_HELP, min=1, max=10_000, metavar="N")] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    max_new_tokens: NewTokens = None,
    seed: Annotated[int, Option(help="Random seed of the first text; each later text has the next.", metavar="N")] = 0,
    valid: Annotated[Path | None, Option(help=VALID_HELP, metavar="DIR")] = None,
    languages: Annotated[
        str | None, Option(help="Source and target in the names of --valid's files: en-de.", metavar="PAIR")
    ] = None,
    workers: Annotated[int | None, Option("--workers", "-j", help=WORKERS_HELP, min=1, max=1024, metavar="N")] = None,
    ray: Annotated[bool, Option("--ray", help=RAY_HELP)] = False,
    max_batch_tokens: Annotated[
        int, Option(help="Capacity of a batch in tokens.", min=1, metavar="N")
    ] = MAX_BATCH_TOKENS,
    device: Device = None,
    resume: Annotated[bool, Option("--resume", help="Continue where it stopped.")] = False,
) -> None:
    """Make training data of an engine's translations or texts.

    \b
    xformc distill engines/teacher mono.en --beam-size 4 --valid data -o distilled
    xformc train student.yaml --data distilled -o runs/student
    xformc distill engines/de-en news.de.gz --back-translation --tag '<BT>' --samples 1 --top-k 10 -o backtranslated
    RAY_ADDRESS=head:6379 xformc distill engines/teacher mono.en --ray -o distilled
    xformc distill engines/gpt prompts.txt --samples 4 --temperature 0.8 -o texts

    TEXT is decoded on all cores into DATA/train.jsonl, which `xformc train` and `xformc data` read; each line also has
    the score. It may be stopped or killed at any moment; --resume continues it, and the file is the same to the byte.
    Lines without text, or too long for the engine, and those whose result has no text are dropped and counted.
    """
    from xformc.trainer.data.in_order import in_order
    from xformc.trainer.data.splits import TABLES, find_validation
    from xformc.trainer.distill.bulk import distill as decode
    from xformc.trainer.distill.decoder import Decoding
    from xformc.trainer.distill.on_ray import find_ray, on_ray

    if ray:
        find_ray()  # said before anything is written
    given = {
        "beam_size": beam_size,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "max_new_tokens": max_new_tokens,
    }
    manifest = read_manifest(engine)
    continues = manifest.task == "language_model"
    draws = continues or samples is not None
    known = ("temperature", "top_k", "top_p") if draws else ("beam_size", "n_best", "length_penalty")
    known += ("max_new_tokens",) if continues else ()
    idle = [name for name, value in given.items() if value is not None and name not in known]
    if idle:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
        what = f"engines for {manifest.task}" if draws == continues else "samples of translations"
        drawn = not draws and set(idle) <= {"temperature", "top_k", "top_p"}
        hint = "leave it out, or draw translations with --samples" if drawn else "leave it out"
        raise UserError(f"{named}: no effect on {what}", hint=hint)
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if valid is None and languages is not None:
        raise UserError("--languages needs --valid")
    files = None
    if valid is not None:
        files = find_validation(valid, ("txt", *TABLES), languages, paired=not continues)
    decoding = Decoding(engine, options, samples, seed, back_translation, tag, max_batch_tokens, device)
    on_gpu = device == "cuda" or (device is None and TRAITS[manifest.target].fixed)
    processes = workers or (0 if ray else 1 if on_gpu else os.cpu_count() or 1)
    spread = partial(on_ray, gpu=on_gpu) if ray else in_order
    with work_bar() as bar:
        task = bar.add_task("decode", total=text_size(text), numbers="")
        report = partial(_show, bar, task, _Speed())
        done = decode(
            text, decoding, output, workers=processes, valid=files, resume=resume, report=report, spread=spread
        )
    print(f"{output}: {done.rows:,} rows of {done.lines:,} lines, {done.tokens:,} tokens{dropped_text(done.dropped)}")


class _Speed:
    """The tokens per second since the first call."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: int | None = None

    def of(self, tokens: int) -> float:
        if self._first is None:
            self._first = tokens
            return 0.0
        return (tokens - self._first) / max(time.monotonic() - self._began, 1e-9)


def _show(bar: Progress, task: TaskID, speed: _Speed, so_far: "Distilled") -> None:
    numbers = f"{so_far.rows:,} rows  {speed.of(so_far.tokens):,.0f} tokens/s"
    bar.update(task, completed=so_far.size, numbers=numbers)
