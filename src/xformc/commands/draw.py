"""`xformc draw`: the architecture of a spec as a picture, or its position encodings as an image."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from xformc.commands.spec_path import SPEC_HELP, complete_spec, find_spec
from xformc.errors import UserError

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
    out: Annotated[Path | None, Option(help="The picture: .svg, .pdf or .png. NAME.svg if left out.")] = None,
    depth: Annotated[
        int | None, Option(help=f"Levels of blocks that are drawn from the inside; {DEPTH} if left out.", min=1)
    ] = None,
    positions: Annotated[bool, Option("--positions", help="Draw the position encodings instead.")] = False,
    length: Annotated[
        int | None, Option(help=f"Positions that --positions draws; {LENGTH} if left out.", min=1, max=100_000)
    ] = None,
    weights: Annotated[
        Path | None, Option(help="The run, checkpoint or file that --positions reads learned ones from.")
    ] = None,
) -> None:
    """Draw the architecture of a spec, or its position encodings.

    \b
    xformc draw transformer_base                              writes transformer_base.svg
    xformc draw specs/numbers.yaml --out numbers.pdf --depth 3
    xformc draw transformer_base --positions --out positions.png

    The flow goes upwards. Layers that are repeated are drawn once, parameters that are tied have a dot of one
    colour, and the axes of values stand beside the arrows. A greater depth shows the inside of more blocks.
    With --positions and several specs, their encodings stand beside each other.
    """
    _check_options(specs, depth, positions, length, weights)
    if positions:
        _draw_positions(specs, out, LENGTH if length is None else length, weights)
        return
    path = find_spec(specs[0])
    from xformc.compiler.explain.picture.draw import draw_spec
    from xformc.compiler.spec import load_spec

    spec = load_spec(path)
    picture = out or Path(f"{spec.name}.svg")
    draw_spec(spec, picture, DEPTH if depth is None else depth)
    print(picture)


def _check_options(
    specs: list[str], depth: int | None, positions: bool, length: int | None, weights: Path | None
) -> None:
    if positions and depth is not None:
        raise UserError("--depth is about the architecture, not about --positions", hint="leave one of them out")
    if not positions and (length is not None or weights is not None):
        raise UserError("--length and --weights are about --positions", hint="add --positions")
    if not positions and len(specs) > 1:
        raise UserError("one architecture at a time", hint="several specs are for --positions")
    if weights is not None and len(specs) > 1:
        raise UserError("--weights belong to one spec", hint="draw the others without")


def _draw_positions(specs: list[str], out: Path | None, length: int, weights: Path | None) -> None:
    paths = [find_spec(spec) for spec in specs]
    from xformc.compiler.explain.picture.position_images import draw_encodings
    from xformc.compiler.spec import load_spec

    loaded = [load_spec(path) for path in paths]
    found = [encoding for spec in loaded for encoding in _encodings(spec, length, weights)]
    picture = out or Path(f"{loaded[0].name}_positions.svg")
    draw_encodings(found, picture)
    print(picture)


def _encodings(spec: "Spec", length: int, weights: Path | None) -> list["Encoding"]:
    from xformc.compiler.explain.picture.position_images import find_encodings
    from xformc.compiler.weight_files import load_weights

    graph = spec.graph()
    arrays: Mapping[str, Any] | None = None if weights is None else load_weights(weights, graph)
    return find_encodings(graph, length, spec.train.seed, arrays)
