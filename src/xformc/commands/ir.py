"""`xformc ir`: the graphs of a spec after any pass."""

from typing import Annotated

from typer import Argument, Option

from xformc.commands.build import TARGET_HELP
from xformc.commands.spec_path import SPEC_HELP, find_spec
from xformc.format.targets import Target


def ir(
    spec: Annotated[str, Argument(help=SPEC_HELP, metavar="SPEC")],
    *,
    after: Annotated[str | None, Option(help="Print the graphs after this pass.", metavar="PASS")] = None,
    target: Annotated[Target, Option(help=TARGET_HELP)] = "portable",
    training: Annotated[bool, Option("--training", help="Compile for training, not for an engine.")] = False,
) -> None:
    """List the passes that a spec goes through, or print its graphs after one of them.

    \b
    xformc ir transformer_base                                the passes, in order
    xformc ir transformer_base --after step                   the derived step graph
    xformc ir transformer_base --after lower --target native
    xformc ir transformer_base --after loss --training

    Every graph is verified after every pass. The text of a graph has a line for each input, parameter, node and output.
    """
    from xformc.compiler.pipeline import applied_passes, print_program
    from xformc.compiler.spec import load_spec

    loaded, goal = load_spec(find_spec(spec)), None if training else target
    if after is not None:
        print(print_program(loaded, after, goal), end="")
        return
    for item, program in applied_passes(loaded, goal):
        nodes = sum(len(graph.nodes) for graph in program.graphs)
        print(f"{item.name:12}{nodes:7,} nodes   {item.does}")
