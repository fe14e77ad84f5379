"""`xformc attention`: what an engine looks at, layer by layer and head by head."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.options import OUT, EngineFolder
from xformc.errors import UserError
from xformc.runtime.arrays import read_npz


def attention(
    engine: EngineFolder,
    texts: Annotated[
        list[str] | None,
        Argument(help="For each input a sentence, or the path of a sound or an image.", metavar="TEXT"),
    ] = None,
    *,
    translation: Annotated[
        str | None, Option(help="The translation to look at.  [default: the engine's own]", metavar="TEXT")
    ] = None,
    arrays: Annotated[
        Path | None, Option("--input", "-i", help="Arrays in an .npz file, in place of TEXT.", metavar="NPZ")
    ] = None,
    example: Annotated[
        int | None, Option(help="The number of the example in --input.  [default: 1]", metavar="N")
    ] = None,
    output: Annotated[
        Path, Option(*OUT, help="A page (.html), or a figure with all maps (.svg, .pdf or .png).", metavar="FILE")
    ] = Path("attention.html"),
) -> None:
    """Show the attention weights of every layer and head for a sentence.

    \b
    xformc attention demo/engine "four hundred and two"       writes attention.html
    xformc attention demo/engine "forty-two" --translation "zweiundvierzig" -o maps.png
    xformc attention whisper/engine talk.wav
    xformc attention digits/engine -i test.npz --example 7

    The weights come from the engine's model. The page is one file and needs no network: choose a layer and a head, and
    point at a cell to read its weight. Rows are queries and columns are keys. In cross-attention a row is the token
    that is written next.
    """
    _check_options(texts, translation, arrays, example)
    from xformc.compiler.explain.attention.attention_engine import look, look_at_arrays
    from xformc.compiler.explain.attention.attention_page import draw_maps, write_page
    from xformc.compiler.explain.figure import check_format

    kind = check_format(output, ("html",))
    if arrays is None:
        looked = look(engine, texts or [], translation)
    else:
        looked = look_at_arrays(engine, read_npz(arrays), 1 if example is None else example)
    (write_page if kind == "html" else draw_maps)(looked, output)
    print(output)


def _check_options(texts: list[str] | None, translation: str | None, arrays: Path | None, example: int | None) -> None:
    if bool(texts) == (arrays is not None):
        raise UserError("give one example: a sentence, or --input with arrays")
    if arrays is not None and translation is not None:
        raise UserError("--translation belongs to a sentence, not to --input", hint="leave one of them out")
    if arrays is None and example is not None:
        raise UserError("--example needs --input", hint="leave it out")
