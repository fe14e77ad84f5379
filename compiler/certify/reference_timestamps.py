"""A plain implementation of texts with timestamps as docs/search.md defines them: which tokens may follow a text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xformc.format.speech import Times


def only_timed(scores: NDArray[np.float32], text: Sequence[int], times: Times) -> tuple[NDArray[np.float32], float]:
    """The scores [vocabulary] of the tokens after a text, whose prefix is left out, -inf for those that may not follow;
    and the difference that decided whether only times may."""
    found, is_time = scores.copy(), [token >= times.first for token in text]
    if times.silent >= 0:
        found[times.silent] = -np.inf
    ends_text = len(text) >= 2 and is_time[-1] and not is_time[-2]
    if not text:
        found[: times.first], found[times.latest + 1 :] = -np.inf, -np.inf
    elif ends_text:
        found[: times.special] = -np.inf
    elif is_time[-1]:
        found[times.first :] = -np.inf
    written = [token for token in text if token >= times.first]
    if written:
        found[times.first : written[-1] + (not ends_text)] = -np.inf
    together, best = np.logaddexp.reduce(found[times.first :].astype(np.float64)), found[: times.first].max()
    if together > best:
        found[: times.first] = -np.inf
    return found, float(abs(together - best)) if together > -np.inf and best > -np.inf else np.inf
