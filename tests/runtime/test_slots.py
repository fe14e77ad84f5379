"""What a batch of searches keeps of its sources, in arrays that grow."""

import numpy as np

from xformc.runtime.serving.searched_batch import Slots


def test_what_has_one_axis_in_common_grows_alike() -> None:
    """Panels of lists: the tokens, and weights of another size, or none."""
    slots, rng = Slots(3), np.random.default_rng(0)
    kept: dict[int, dict[str, np.ndarray]] = {}
    for slot, panels in ((0, 8), (1, 3), (2, 9), (0, 2), (1, 40)):
        kept[slot] = {
            "tokens": rng.integers(1, 99, (1, panels, 32)),
            "weights": rng.integers(1, 99, (1, panels, 5), dtype=np.int8),
            "biases": np.zeros((1, panels, 0), np.float32),
        }
        slots.write(kept[slot], [slot])
        shapes = {value.shape[:2] for value in slots.arrays.values()}
        assert len(shapes) == 1
        for filled, values in kept.items():
            for name, value in values.items():
                count = value.shape[1]
                assert np.array_equal(slots.arrays[name][filled, :count], value[0])
                assert not slots.arrays[name][filled, count:].any(), "what is beyond is padding"
