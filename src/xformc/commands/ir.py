"""`xformc ir`: the graphs of a spec after any pass."""

from typing import Annotated

from typer import Argument, Option

from xformc.commands.build import PRECISION_HELP, TARGET_HELP
from xformc.commands.spec_path import SPEC_HELP, find_spec
from xformc.format.precision import WORDS, PrecisionWord
from xformc.format.targets import Target


def ir(
    spec: Annotated[str, Argument(help=SPEC_HELP, metavar="SPEC")],
    *,
    after: Annotated[str | None, Option(help="Print the graphs after this pass.", metavar="PASS")] = None,
    target: Annotated[Target, Option(help=TARGET_HELP)] = "portable",
    precision: Annotated[PrecisionWord | None, Option(help=PRECISION_HELP)] = None,
    training: Annotated[bool, Option("--training", help="Compile for training, not for an engine.")] = False,
) -> None:
    """List the passes that a spec goes through, or print its graphs after one of them.

    \b
    xformc ir transformer_base                                the passes, in order
    xformc ir transformer_base --after step                   the derived step graph
    xformc ir transformer_base --after lower --target native
    xformc ir transformer_base --after loss --training

    The text of a graph has a line for each input, parameter, node and output. With XFORMC_CHECK_PASSES=1 every graph is
    verified after every pass, here as in every other command.
    """
    from xformc.compiler.pipeline import applied_passes, begin, print_program
    from xformc.compiler.spec import load_spec

    loaded = load_spec(find_spec(spec))
    default = None if precision is None else WORDS[precision]
    program = begin(loaded) if training else begin(loaded, target, loaded.precisions(default))
    if after is not None:
        print(print_program(program, after), end="")
        return
    for item, reached in applied_passes(program):
        nodes = sum(len(graph.nodes) for graph in reached.graphs)
        print(f"{item.name:12}{nodes:7,} nodes   {item.does}")
