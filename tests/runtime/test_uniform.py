"""The runtime's random numbers agree with their definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xformc.compiler.certify.reference_sampling import uniform
from xformc.runtime.devices.uniform import uniform_numbers


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4), st.integers(1, 9))
def test_numbers_are_those_of_the_definition(seeds: list[int], count: int) -> None:
    numbers = uniform_numbers(np.array(seeds, np.int64), count)
    assert numbers.tolist() == [[uniform(seed, place) for place in range(1, count + 1)] for seed in seeds]
