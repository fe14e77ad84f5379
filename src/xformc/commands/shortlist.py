"""`xformc shortlist`: which tokens a translation may have, from parallel text."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.options import OUT
from xformc.errors import UserError
from xformc.terminal import progress_console

RUN_HELP = "A run of a model that translates text, whose tokenizers cut the text."
COMMON_HELP = "How many of the most frequent target tokens every translation may have."
BEST_HELP = "How many target tokens each source token allows, the likeliest by IBM Model 1."
PAIRS_HELP = "How many pairs of the training text are read, evenly spaced."


def shortlist(
    run: Annotated[Path, Argument(help=RUN_HELP, metavar="RUN")],
    *,
    data: Annotated[Path, Option(help="The folder with the text that the run was trained on.", metavar="DIR")],
    languages: Annotated[str | None, Option(help="Source and target in the file names: en-de.", metavar="PAIR")] = None,
    output: Annotated[
        Path | None, Option(*OUT, help="The file to write.  [default: RUN/shortlist.safetensors]", metavar="FILE")
    ] = None,
    common: Annotated[int, Option(help=COMMON_HELP, min=1, max=100_000, metavar="N")] = 100,
    best: Annotated[int, Option(help=BEST_HELP, min=1, max=1_000, metavar="N")] = 100,
    pairs: Annotated[int, Option(help=PAIRS_HELP, min=1, max=10_000_000, metavar="N")] = 200_000,
) -> None:
    """List the tokens that translations of a source may have, so that an engine computes no others.

    \b
    xformc shortlist runs/de --data wmt --languages en-de
    xformc build runs/de --shortlist runs/de/shortlist.safetensors -o engines/de

    A translation may have the common tokens and those that its source's tokens allow. It says how much of the
    validation text the lists have, and how long they are; `xformc evaluate` tells what that costs.
    """
    from xformc.compiler.shortlist import write_shortlist
    from xformc.compiler.spec import load_spec
    from xformc.format.names import SHORTLIST, SPEC
    from xformc.trainer.lexicon import Sizes, make_shortlist
    from xformc.trainer.run_files import find_run

    folder = find_run(run)
    if folder is None or not (folder / SPEC).is_file():
        what = "not a run: it has no spec.yaml" if run.is_dir() else "no such folder"
        raise UserError(what, place=str(run), hint="give the folder of `xformc train` or `xformc import`")
    path = output or folder / SHORTLIST
    if path.exists() and not path.is_file():
        raise UserError("is no file", place=str(path), hint="give --output a new file")
    spec = load_spec(folder / SPEC)
    with progress_console().status("reading") as status:
        found, coverage = make_shortlist(spec, folder, data, languages, Sizes(common, best, pairs), status.update)
    write_shortlist(found, path)
    share = 100 * coverage.listed / max(coverage.tokens, 1)
    most = f"up to {found.likely.shape[1]:,} for each source token"
    print(f"{path}: {len(found.common):,} common tokens, with the end token, and {most}")
    print(f"  validation text: {share:.2f}% of its tokens are listed; a list has {coverage.mean:,.0f} tokens")
