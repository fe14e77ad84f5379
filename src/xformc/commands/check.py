"""`xformc check` and `xformc schema`: the spec alone."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated

from typer import Option

from xformc.commands.options import Json, Settings, SpecName, TextOutput
from xformc.commands.text_lines import output_text
from xformc.specs import find_spec

if TYPE_CHECKING:
    from xformc.compiler.graph.graph import Graph

NAME_WIDTH = 24
"""The least width of the column of names."""


def check(
    spec: SpecName,
    *,
    settings: Settings = None,
    parameters: Annotated[bool, Option("--parameters", help="Print the path and axes of each parameter.")] = False,
    as_json: Json = False,
) -> None:
    """Check a spec, and print its sizes and parameters.

    \b
    xformc check specs/transformer_base.yaml
    xformc check transformer_big --set sizes.layers=12 --json
    xformc check t5 --parameters

    Mistakes are shown together, each with its line, and the exit code is 2. A model that writes text must be able
    to do so step by step.
    """
    path = find_spec(spec)
    from dataclasses import asdict

    from xformc.compiler.explain.parameters import parameter_rows, parameters_text
    from xformc.compiler.pipeline import compile_engine
    from xformc.compiler.spec import load_spec

    checked = load_spec(path, settings or ())
    graph = compile_engine(checked).graph
    counts = _parameters_by_stage(graph)
    total, learned = sum(counts.values()), sum(checked.learned_numbers().values())
    rows = parameter_rows(checked) if parameters else []
    if as_json:
        found = _as_json(checked.name, checked.task, dict(checked.sizes), counts, learned)
        print(json.dumps(found | ({"paths": [asdict(row) for row in rows]} if parameters else {})))
        return
    if parameters:
        print(parameters_text(rows))
        return
    counted = {**counts, "total": total, **({"trained": learned} if learned != total else {})}
    width = max(NAME_WIDTH, *map(len, (*checked.sizes, *counted)))
    print(f"{checked.name}: {checked.task}, no mistakes")
    for title, numbers in (("sizes", checked.sizes), ("parameters", counted)):
        print(title)
        for name, number in numbers.items():
            print(f"  {name:<{width}}{number:>14,}")


def schema(output: TextOutput = None) -> None:
    """Print the JSON schema of the spec language, for editors.

    \b
    xformc schema -o xformc.schema.json
    # then, as the first line of a spec:
    # yaml-language-server: $schema=xformc.schema.json
    """
    from xformc.compiler.spec import json_schema

    with output_text(output) as handle:
        print(json.dumps(json_schema(), indent=2), file=handle)


def _parameters_by_stage(graph: "Graph") -> dict[str, int]:
    counts: Counter[str] = Counter()
    for parameter in graph.parameters:
        counts[parameter.name.partition("/")[0]] += parameter.count
    return dict(counts)


def _as_json(name: str, task: str, sizes: dict[str, object], counts: dict[str, int], trained: int) -> dict[str, object]:
    parameters = {**counts, "total": sum(counts.values()), "trained": trained}
    return {"name": name, "task": task, "sizes": sizes, "parameters": parameters}
