"""`xformc new`: a small spec to start from."""

import json
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.options import OUT, Json
from xformc.errors import UserError
from xformc.format.tasks import NAMED


def new(
    task: Annotated[str, Argument(help=f"{', '.join(NAMED[:-1])} or {NAMED[-1]}.", metavar="TASK")],
    *,
    output: Annotated[Path, Option(*OUT, help="The spec.", metavar="FILE")] = Path("model.yaml"),
    as_json: Json = False,
) -> None:
    """Write a small spec for a task, with comments, and the JSON schema beside it.

    \b
    xformc new translation
    xformc new tagging -o tagger/model.yaml

    Editors complete the spec and mark its mistakes with the schema. An existing spec is never replaced.
    """
    if task not in NAMED:
        raise UserError(f"unknown task '{task[:40]}'", hint=f"the tasks are {', '.join(NAMED)}")
    from xformc.compiler.explain.starters import write_starter
    from xformc.compiler.spec import json_schema

    files = write_starter(task, output, json.dumps(json_schema(), indent=2) + "\n")
    if as_json:
        print(json.dumps({"spec": str(files[0]), "schema": str(files[1])}))
        return
    print(files[0])
    print(f"wrote {files[0]} and {files[1]}; next: xformc check {files[0]}", file=sys.stderr)
