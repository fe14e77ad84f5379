"""`xformc draw`: the architecture of a spec as a picture, or its position encodings as an image."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from xformc.commands.options import OUT, SPEC_HELP, Settings, complete_spec
from xformc.errors import UserError, refuse_together
from xformc.specs import find_spec

if TYPE_CHECKING:
    from xformc.compiler.explain.picture.position_images import Encoding
    from xformc.compiler.spec import Spec

DEPTH, LENGTH = 2, 100


def draw(
    specs: Annotated[
        list[str],
        Argument(help=f"{SPEC_HELP} Several with --positions.", metavar="SPEC...", autocompletion=complete_spec),
    ],
    *,
    output: Annotated[
        Path | None, Option(*OUT, help="The picture: .svg, .pdf or .png.  [default: NAME.svg]", metavar="FILE")
    ] = None,
    depth: Annotated[
        int | None, Option(help=f"Nesting depth of the blocks to draw.  [default: {DEPTH}]", min=1, metavar="N")
    ] = None,
    settings: Settings = None,
    positions: Annotated[bool, Option("--positions", help="Draw the position encodings instead.")] = False,
    length: Annotated[
        int | None,
        Option(help=f"Number of positions for --positions.  [default: {LENGTH}]", min=1, max=100_000, metavar="N"),
    ] = None,
    weights: Annotated[
        Path | None, Option(help="A run, checkpoint or file with learned encodings for --positions.", metavar="PATH")
    ] = None,
) -> None:
    """Draw the architecture of a spec, or its position encodings.

    \b
    xformc draw transformer_base                              writes transformer_base.svg
    xformc draw specs/numbers.yaml -o numbers.pdf --depth 3
    xformc draw transformer_base --positions -o positions.png

    Data flows upwards. Repeated layers are drawn once, tied parameters have dots of the same colour, and the axes of
    values stand beside the arrows. A greater depth shows the inside of more blocks. --positions draws the encodings of
    several specs side by side.
    """
    _check_options(specs, depth, positions, length, weights)
    if positions:
        _draw_positions(specs, output, LENGTH if length is None else length, weights, settings or ())
        return
    path = find_spec(specs[0])
    from xformc.compiler.explain.picture.draw import draw_spec
    from xformc.compiler.spec import load_spec

    spec = load_spec(path, settings or ())
    picture = output or Path(f"{spec.name}.svg")
    draw_spec(spec, picture, DEPTH if depth is None else depth)
    print(picture)


def _check_options(
    specs: list[str], depth: int | None, positions: bool, length: int | None, weights: Path | None
) -> None:
    refuse_together({"--depth": depth, "--positions": positions})
    if not positions and (length is not None or weights is not None):
        raise UserError("--length and --weights need --positions", hint="add --positions")
    if not positions and len(specs) > 1:
        raise UserError("several specs need --positions", hint="draw one architecture at a time")
    if weights is not None and len(specs) > 1:
        raise UserError("--weights fits one spec only", hint="draw the others without it")


def _draw_positions(
    specs: list[str], output: Path | None, length: int, weights: Path | None, settings: Sequence[str]
) -> None:
    paths = [find_spec(spec) for spec in specs]
    from xformc.compiler.explain.picture.position_images import draw_encodings
    from xformc.compiler.spec import load_spec

    loaded = [load_spec(path, settings) for path in paths]
    found = [encoding for spec in loaded for encoding in _encodings(spec, length, weights)]
    picture = output or Path(f"{loaded[0].name}_positions.svg")
    draw_encodings(found, picture)
    print(picture)


def _encodings(spec: "Spec", length: int, weights: Path | None) -> list["Encoding"]:
    from xformc.compiler.explain.picture.position_images import find_encodings
    from xformc.compiler.weight_files import load_weights

    graph = spec.graph()
    arrays: Mapping[str, Any] | None = None if weights is None else load_weights(weights, graph)
    return find_encodings(graph, length, spec.train.seed, arrays)
