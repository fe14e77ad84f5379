"""The argument SPEC: a spec's file, or the name of one that comes with xformc."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from xformc.specs import find_shipped, shipped_specs

SPEC_HELP = "A spec's file, or the name of one that comes with xformc."


def complete_spec(incomplete: str) -> list[str]:
    """The names that begin so, for a shell."""
    return [name for name in shipped_specs() if name.startswith(incomplete)]


SpecName = Annotated[str, Argument(help=SPEC_HELP, metavar="SPEC", autocompletion=complete_spec)]


def find_spec(spec: str) -> Path:
    """The file that `spec` means: a path, or a name such as `transformer_base` or `tying/none`.

    Raises: UserError if there is neither such a file nor such a shipped spec.
    """
    path = Path(spec)
    return path if path.exists() or path.suffix else find_shipped(spec)
