"""Alternatives at a position: the most likely tokens after a prefix, each with the best text that goes on from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from xformc.errors import UserError, refuse_together
from xformc.format.abilities import TAKES_OPTIONS_BY_TEXT, TAKES_PREFIXES
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest, SearchOptions
from xformc.runtime.job import Job
from xformc.runtime.options import checked_integer
from xformc.runtime.rows import Row
from xformc.runtime.searching.translate import Hypothesis, write_rows
from xformc.runtime.session import Session
from xformc.runtime.text.tokenizer import Tokenizer

Item = TypeVar("Item")

MOST = 1_000


def checked_alternatives(manifest: Manifest, given: int | None, beside: Mapping[str, object]) -> int | None:
    """Return the number of alternatives of a call; None if there are none.

    beside: the arguments that exclude them, None where they are not given.

    Raises: UserError for a wrong number, for such an argument, and for an engine that cannot.
    """
    if given is None:
        return None
    for name, value in beside.items():
        refuse_together({"alternatives": given, name: value})
    if manifest.suppress_first:
        message = f"{manifest.name} suppresses tokens after the prefix; alternatives would move them by one place"
        raise UserError(message, hint="leave out alternatives, or build it without decode.suppress_first")
    for ability in (TAKES_PREFIXES, TAKES_OPTIONS_BY_TEXT):
        manifest.require(ability)
    most = min(MOST, manifest.inputs[manifest.written].pieces // 4)
    return checked_integer("alternatives", given, 1, 1, max(1, most))


def with_alternatives(
    job: Job[Item, Row, list[Hypothesis]],
    count: int,
    *,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    options: SearchOptions,
) -> Job[Item, Row, list[Hypothesis]]:
    """Return the job whose result is the best text of each alternative, the most likely alternative first.

    `job` searches with `options`. A text ends nowhere before its alternative, and is no alternative itself.
    """
    ends = manifest.inputs[manifest.written].special.end
    banned = (*(options.suppress_tokens or ()), *ends)
    plain: Any = {
        "beam_size": count,
        "n_best": count,
        "beam_groups": 1,
        "length_penalty": 0.0,
        "min_length": 0,
        "stop_rule": "first",
    }
    plain["beam_groups"] = options.beam_groups and 1
    next_options = replace(options, **plain, patience=1.0, suppress_tokens=banned)
    forced: Row = {} if options.prefix_bias is None else {"prefix_bias": np.array(0, np.float32)}

    def next_only(row: Row) -> Row:
        """The row of a search for one token more than the prefix."""
        begun = len(row.get(PREFIX, ())) or len(manifest.prefix)
        own = {name: value for name, value in row.items() if name not in plain and name != "patience"}
        if "suppress_tokens" in own:
            own["suppress_tokens"] = np.append(own["suppress_tokens"], ends)
        limits = {"max_length_factor": np.array(0, np.float32), "max_length_offset": np.array(begun + 1, np.int64)}
        return {**own, **forced, **limits}

    def run(session: Session, rows: Sequence[Row]) -> list[list[Hypothesis]]:
        found = write_rows(
            session, [*map(next_only, rows)], manifest=manifest, tokenizer=tokenizer, options=next_options
        )
        begun = [[one.tokens for one in several if one.tokens and one.score > -np.inf] for several in found]
        begun = [several or [tuple(map(int, row.get(PREFIX, ())))] for several, row in zip(begun, rows, strict=True)]
        flat = [
            {**row, **forced, PREFIX: np.array(tokens, np.int64)}
            for row, several in zip(rows, begun, strict=True)
            for tokens in several
        ]
        texts = iter(job.run(session, flat))
        return [[next(texts)[0] for _ in several] for several in begun]

    return Job(job.encode, lambda row: count * job.size(row), run)
