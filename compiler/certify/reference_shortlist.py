"""The logits among which a search with a shortlist looks: those of the training form, but -inf for other tokens."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.reference_search import Scorer
from xformc.compiler.certify.subject import Subject
from xformc.compiler.program import Program
from xformc.compiler.spec.alignment import SOURCE
from xformc.format.interfaces import PHRASES, PREFIX, START
from xformc.runtime.rows import Row


def allowed_tokens(program: Program, source: Row, *, whole: bool) -> NDArray[np.bool_]:
    """The tokens that may follow in the search of a source, [vocabulary].

    All, without a shortlist, with a first state, or if its beginning is a `whole` text; otherwise those of its list,
    its beginning and its phrases.
    """
    written = program.inputs[str(program.written)]
    begun = [int(token) for token in source.get(PREFIX, ())] or [*program.prefix]
    if program.shortlist is None or int(source.get(START, -1)) >= 0 or whole:
        return np.ones(written.pieces, np.bool_)
    phrases = np.asarray(source.get(PHRASES, ()), np.int64).ravel()
    return program.shortlist.allowed(source[SOURCE], [*begun, *phrases.tolist()], written.pieces)


def searched(
    subject: Subject, sources: Sequence[Row], written: NDArray[np.int64], whole: Sequence[bool]
) -> NDArray[np.float32]:
    """The logits of texts [batch, positions], each of its source, in their searches; `whole` as of `allowed_tokens`."""
    logits = subject.scored(sources, written)
    if subject.program.shortlist is None:
        return logits
    pairs = zip(sources, whole, strict=True)
    allowed = np.stack([allowed_tokens(subject.program, source, whole=given) for source, given in pairs])
    return np.where(allowed[:, None], logits, np.float32(-np.inf))


def search_scorer(subject: Subject, source: Row, *, whole: bool = False) -> Scorer:
    """`searched` for texts of one source."""
    return lambda written: searched(subject, [source] * len(written), written, [whole] * len(written))
