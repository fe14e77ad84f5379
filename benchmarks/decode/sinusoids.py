"""The paper's position encodings, as other implementations store them."""

import numpy as np


def sinusoids(count: int, width: int) -> np.ndarray:
    """Return the paper's position encodings [count, width], sine and cosine interleaved."""
    angles = np.arange(count)[:, None] * np.power(10000.0, -np.arange(0, width, 2) / width)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(count, width).astype(np.float32)
