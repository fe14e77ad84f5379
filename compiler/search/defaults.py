"""The search's options and their default values, as they stand in an engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchDefaults:
    """What the search does unless its inputs say otherwise (the paper's section 6.1)."""

    beam_width: int = 4
    n_best: int = 1
    length_penalty: float = 0.6
    max_length_factor: float = 1.0
    max_length_offset: int = 50
