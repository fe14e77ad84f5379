"""A plain implementation of the constraints that docs/search.md defines: which tokens may follow a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Language:
    """The texts that match: the state after each state and token [states, vocabulary], -1 for none, the fewest tokens
    from each state to the end of a text [states], and the state in which texts begin."""

    next: NDArray[Any]
    needs: NDArray[Any]
    start: int

    @property
    def room(self) -> int:
        """The tokens of the shortest text, and an end token."""
        return int(self.needs[self.start]) + 1

    def allowed(self, text: Sequence[int], left: int) -> NDArray[np.bool_]:
        """Which tokens may follow a text, if at most `left` tokens may follow them, [vocabulary]."""
        state = self.start
        for token in text:
            state = int(self.next[state, token]) if state >= 0 else -1
        if state < 0:
            return np.zeros(len(self.next[0]), np.bool_)
        after = self.next[state]
        fits = self.needs[np.maximum(after, 0)] <= left
        return np.asarray((after >= 0) & fits, np.bool_)
