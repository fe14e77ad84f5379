"""The options `--align` and `--attention`, and how an alignment is written."""

from typing import Annotated

from typer import Option

from xformc.errors import UserError
from xformc.runtime import Alignment
from xformc.runtime.searching.translate import rounded

Align = Annotated[
    bool, Option("--align", help="Add the links of source and target words, as in Pharaoh: 0-0 1-2, counted from 0.")
]
Attention = Annotated[
    bool, Option("--attention", help="With --json, also the attention weights of each token on those of the source.")
]


def check_attention(attention: bool, as_json: bool) -> None:
    """Raises: UserError for attention weights that would not be shown."""
    if attention and not as_json:
        raise UserError("--attention needs --json", hint="each object then has `attention`, a list for each token")


def alignment_fields(alignment: Alignment | None, *, attention: bool) -> dict[str, object]:
    """Return the fields of an alignment for JSON; none without one."""
    if alignment is None:
        return {}
    weights = [[rounded(float(one)) for one in row] for row in alignment.attention]
    return {"alignment": alignment.words, **({"attention": weights} if attention else {})}
