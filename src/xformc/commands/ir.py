"""`xformc ir`: the graphs of a spec after any pass."""

from dataclasses import replace
from typing import Annotated

from typer import Option

from xformc.commands.options import CachesName, PrecisionName, Settings, SpecName, TargetName
from xformc.format.precision import number_format
from xformc.runtime.library import choose_target
from xformc.specs import find_spec


def ir(
    spec: SpecName,
    *,
    after: Annotated[str | None, Option(help="Print the graphs after this pass.", metavar="PASS")] = None,
    target: TargetName = "portable",
    precision: PrecisionName = None,
    caches: CachesName = None,
    settings: Settings = None,
    training: Annotated[bool, Option("--training", help="Compile for training, not for an engine.")] = False,
) -> None:
    """List the compiler passes of a spec, or print its graphs after one of them.

    \b
    xformc ir transformer_base                                the passes, in order
    xformc ir transformer_base --after step                   the derived step graph
    xformc ir transformer_base --after lower --target native
    xformc ir transformer_base --after loss --training

    A graph has one line for each input, parameter, node and output. With XFORMC_CHECK_PASSES=1 every command verifies
    every graph after every pass. The default target is portable, so that all machines print the same.
    """
    from xformc.compiler.pipeline import applied_passes, begin, print_program
    from xformc.compiler.spec import load_spec

    loaded = load_spec(find_spec(spec), settings or ())
    chosen, _ = choose_target(target)
    program = begin(loaded)
    if not training:
        program = begin(loaded, chosen, loaded.precisions(number_format(precision)))
        program = replace(program, caches=caches or loaded.caches)
    if after is not None:
        print(print_program(program, after), end="")
        return
    for item, reached in applied_passes(program):
        nodes = sum(len(graph.nodes) for graph in reached.graphs)
        print(f"{item.name:12}{nodes:7,} nodes   {item.does}")
