"""The option `--token-scores`, and what it adds to an object of JSON."""

from collections.abc import Callable
from typing import Annotated

from typer import Option

from xformc.errors import UserError
from xformc.runtime import Continuation, Engine, Hypothesis
from xformc.runtime.score import token_fields

TokenFields = Callable[[Hypothesis | Continuation], dict[str, object]]
"""Returns what is shown of a text's tokens."""

TokenScores = Annotated[
    bool, Option("--token-scores", help="With --json, also the log probability of each token, and the token itself.")
]


def token_fields_of(engine: Engine, *, wanted: bool) -> TokenFields:
    """Return the function that makes the fields of a text's tokens; they are empty unless `wanted`."""
    if not wanted:
        return lambda _: {}
    name, tokenizer = engine.manifest.written, engine.tokenizer
    return lambda one: token_fields(tokenizer, name, one)


def require_json(token_scores: bool, as_json: bool) -> None:
    """Raises: UserError for scores of tokens that would not be shown."""
    if token_scores and not as_json:
        raise UserError("--token-scores needs --json", hint="each object then has the pieces and their scores, too")
