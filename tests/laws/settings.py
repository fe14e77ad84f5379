"""The number of examples of each law: few and fixed, or with LAWS=N random and N times as many.

So are the specs of a test that takes long for each of them: some, or with LAWS=1 all of them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("LAWS", "0"))


def examples(count: int) -> Callable[[Any], Any]:
    """Settings for a law with this number of examples."""
    health = cast("list[HealthCheck]", list(HealthCheck))  # hypothesis types them by their metaclass
    few = settings(max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=health)
    return settings(few, max_examples=count * TIMES, derandomize=False) if TIMES else few


def some(names: Sequence[str], every: int, first: int = 0, *, but: Sequence[str] = ()) -> list[str]:
    """Every so many of the names, from the place `first` on, and those of `but`; with LAWS=1 all of them."""
    return [name for place, name in enumerate(names) if TIMES or place % every == first or name in but]
