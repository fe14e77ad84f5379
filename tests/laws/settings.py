"""The number of examples of each law: few and fixed, or with LAWS=N random and N times as many."""

import os
from collections.abc import Callable
from typing import Any, cast

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("LAWS", "0"))


def examples(count: int) -> Callable[[Any], Any]:
    """Settings for a law with this number of examples."""
    health = cast("list[HealthCheck]", list(HealthCheck))  # hypothesis types them by their metaclass
    few = settings(max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=health)
    return settings(few, max_examples=count * TIMES, derandomize=False) if TIMES else few
