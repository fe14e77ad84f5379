"""`xformc attention`: what an engine looks at, layer by layer and head by head."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.translate import ENGINE_HELP


def attention(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    texts: Annotated[list[str], Argument(help="A sentence; one for each input of text.", metavar="TEXT...")],
    *,
    target: Annotated[str | None, Option(help="The translation to look at; the engine's own if left out.")] = None,
    out: Annotated[
        Path, Option(help="A page (.html), or a figure with a grid of all maps (.svg, .pdf or .png).")
    ] = Path("attention.html"),
) -> None:
    """Show the attention weights of every layer and head for a sentence.

    \b
    xformc attention demo/engine "four hundred and two"       writes attention.html
    xformc attention demo/engine "forty-two" --target "zweiundvierzig" --out maps.png

    The weights are those of the engine's model, computed from its graph. The page is one file that needs no network:
    choose a layer and a head, and point at a cell to read its weight. A row is the position that looks, a column is
    what it looks at. Where a target looks at its source, a row is the piece that is being written.
    """
    from xformc.compiler.report.attention_engine import look
    from xformc.compiler.report.attention_page import draw_maps, write_page
    from xformc.compiler.report.figure import check_format

    kind = check_format(out, ("html",))
    looked = look(engine, texts, target)
    (write_page if kind == "html" else draw_maps)(looked, out)
    print(out)
