"""Random graphs whose nodes are labelled with the majority colour of their neighbourhood.

The task tests attention along edges (graph attention networks, Velickovic et al., 2018): without the edges, which are
an input, the colours say little. A node has one of three colours, the tokens 4, 5 and 6. Its label is the most frequent
colour among its neighbours and itself, the first one in a tie.
"""

from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.splits import TEST, VALID, split_rows, write_arrays

COLOURS = ("blue", "green", "red")
FIRST_TOKEN = 4
NODES = (6, 14)
DENSITY = 0.3
TRAIN = 6_000


def write(folder: Path, seed: int) -> None:
    """Write train.npz, valid.npz and test.npz.

    nodes: int64 [n, nodes], padded with 0. edges: bool [n, nodes, nodes], symmetric, with an edge from each node to
    itself. labels: names [n, nodes], padded with "".
    """
    random = np.random.default_rng(seed)
    count = TRAIN + VALID + TEST
    arrays = draw(random, count)
    write_arrays(folder, split_rows(arrays, np.arange(count)))


def draw(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Draw `count` graphs."""
    longest = NODES[1]
    there = np.arange(longest) < random.integers(NODES[0], longest + 1, (count, 1))
    colours = random.integers(0, len(COLOURS), (count, longest))
    upper = np.triu(random.random((count, longest, longest)) < DENSITY, 1)
    edges = (upper | upper.transpose(0, 2, 1) | np.eye(longest, dtype=bool)) & there[:, None] & there[:, :, None]
    votes = edges.astype(np.int64) @ np.eye(len(COLOURS), dtype=np.int64)[colours]
    labels = np.where(there, np.array(COLOURS)[votes.argmax(-1)], "")
    return {"nodes": np.where(there, colours + FIRST_TOKEN, 0), "edges": edges, "labels": labels}
