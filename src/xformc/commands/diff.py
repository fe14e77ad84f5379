"""`xformc diff`: what differs between two specs."""

import json
from typing import Annotated

from typer import Argument

from xformc.commands.options import Json, Settings, SpecName, complete_spec
from xformc.errors import UserError
from xformc.specs import find_spec

OTHER_HELP = "Another one.  [default: the same, with --set]"


def diff(
    spec: SpecName,
    other: Annotated[str | None, Argument(help=OTHER_HELP, metavar="[OTHER]", autocompletion=complete_spec)] = None,
    *,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what differs between two specs: sizes, choices, inputs, settings, parameters and cost.

    \b
    xformc diff transformer_base transformer_big
    xformc diff gpt mine.yaml --json
    xformc diff gpt --set sizes.layers=24

    --set replaces values of the second spec. The exit code is 0 whether they differ or not.
    """
    if other is None and not settings:
        raise UserError("nothing to compare the spec with", hint="name another spec, or replace values with --set")
    paths = find_spec(spec), find_spec(other or spec)
    from dataclasses import asdict

    from xformc.compiler.explain.differences import differences, differences_text
    from xformc.compiler.spec import load_spec

    found = differences(load_spec(paths[0]), load_spec(paths[1], settings or ()))
    print(json.dumps(asdict(found)) if as_json else differences_text(found))
