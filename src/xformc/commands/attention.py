"""`xformc attention`: what an engine looks at, layer by layer and head by head."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.predict import INPUT_HELP
from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.runtime.arrays import read_npz


def attention(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    texts: Annotated[list[str] | None, Argument(help="A sentence; one for each input of text.", metavar="TEXT")] = None,
    *,
    target: Annotated[str | None, Option(help="The translation to look at; the engine's own if left out.")] = None,
    arrays: Annotated[Path | None, Option("--input", help=INPUT_HELP, metavar="NPZ")] = None,
    example: Annotated[int | None, Option(help="Which example of --input, from 1; the first if left out.")] = None,
    out: Annotated[
        Path, Option(help="A page (.html), or a figure with a grid of all maps (.svg, .pdf or .png).")
    ] = Path("attention.html"),
) -> None:
    """Show the attention weights of every layer and head for a sentence.

    \b
    xformc attention demo/engine "four hundred and two"       writes attention.html
    xformc attention demo/engine "forty-two" --target "zweiundvierzig" --out maps.png
    xformc attention digits/engine --input test.npz --example 7

    The weights are those of the engine's model, computed from its graph. The page is one file that needs no network:
    choose a layer and a head, and point at a cell to read its weight. A row is the position that looks, a column is
    what it looks at. Where a target looks at its source, a row is the piece that is being written.
    """
    _check_options(texts, target, arrays, example)
    from xformc.compiler.explain.attention.attention_engine import look, look_at_arrays
    from xformc.compiler.explain.attention.attention_page import draw_maps, write_page
    from xformc.compiler.explain.figure import check_format

    kind = check_format(out, ("html",))
    if arrays is None:
        looked = look(engine, texts or [], target)
    else:
        looked = look_at_arrays(engine, read_npz(arrays), 1 if example is None else example)
    (write_page if kind == "html" else draw_maps)(looked, out)
    print(out)


def _check_options(texts: list[str] | None, target: str | None, arrays: Path | None, example: int | None) -> None:
    if bool(texts) == (arrays is not None):
        raise UserError("give it one example: a sentence, or --input with arrays")
    if arrays is not None and target is not None:
        raise UserError("--target is about a sentence, not about --input", hint="leave one of them out")
    if arrays is None and example is not None:
        raise UserError("--example is about --input", hint="leave it out")
