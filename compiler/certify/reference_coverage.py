"""The coverage of a source, as docs/search.md defines it, from the attention weights of a whole text."""

import numpy as np
from numpy.typing import NDArray

LEAST = float(np.finfo(np.float32).smallest_normal)


def coverage_of(weights: NDArray[np.float32], real: NDArray[np.bool_]) -> float:
    """The sum over the `real` positions of the source of log(min(c, 1)) (Wu et al. 2016, equation 14), where c is the
    sum of the weights [target, source] over the target, but at least LEAST."""
    covered = weights[:, real].astype(np.float64).sum(axis=0)
    return float(np.log(np.clip(covered, LEAST, 1.0)).sum())
