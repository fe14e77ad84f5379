"""Which sentences to decode together: those of like length, so that little time goes into padding."""

from collections.abc import Sequence

SHORTEST = 16
"""A shorter sentence counts as this many tokens, so that the rows of a batch, which cost memory too, are bounded."""


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices into `lengths`, grouped; longest first.

    A group's rows times its longest (or SHORTEST, if that is more) stay within `batch_tokens`, but a longer sentence
    has a group of its own.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not groups or (len(groups[-1]) + 1) * max(SHORTEST, lengths[groups[-1][0]]) > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups
