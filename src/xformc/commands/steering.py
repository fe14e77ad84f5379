"""The options `--stop`, `--regex` and `--json-schema`: before what a text ends, and what it matches."""

from pathlib import Path
from typing import Annotated

from typer import Option

from xformc.errors import UserError

SCHEMA_BYTES = 1 << 20

STOP_HELP = "End each text before this one. May be repeated."
StopStrings = Annotated[list[str] | None, Option("--stop", help=STOP_HELP, metavar="TEXT")]
REGEX_HELP = "Each text matches this regular expression as a whole."
Regex = Annotated[str | None, Option("--regex", help=REGEX_HELP, metavar="REGEX")]
SCHEMA_HELP = "Each text is JSON of the schema in this file."
SchemaFile = Annotated[Path | None, Option("--json-schema", help=SCHEMA_HELP, metavar="FILE")]


def schema_in(path: Path | None) -> str | None:
    """Return the text of a file with a JSON schema; None if there is none. Raises: UserError if it is none."""
    if path is None:
        return None
    with path.open("rb") as file:
        found = file.read(SCHEMA_BYTES + 1)
    if len(found) > SCHEMA_BYTES:
        raise UserError(f"larger than {SCHEMA_BYTES:,} bytes", place=str(path), hint="a schema is a small JSON file")
    try:
        return found.decode()
    except UnicodeError as error:
        raise UserError("not valid UTF-8", place=str(path)) from error
