"""ProjectCandidates of runtime/kernels/ gives the same bits as Project followed by Candidates."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import Array, check_refused, kernel_session, node, run_node
from xformc.compiler.quantize.formats import FORMATS
from xformc.format.precision import Precision

RESULTS = {"totals": np.float32, "tokens": np.int64, "parents": np.int64}
PRECISIONS: list[Precision] = ["float32", "float16", "bfloat16", "int8", "int4"]


pytestmark = pytest.mark.usefixtures("isa")


@dataclass(frozen=True)
class Vocabulary:
    """The projection onto a vocabulary as the operators take it."""

    precision: Precision
    size: int
    weight: Array
    scale: Array | None
    bias: Array | None

    @property
    def inputs(self) -> list[Array]:
        """What there is of weight, scale and bias."""
        return [value for value in (self.weight, self.scale, self.bias) if value is not None]


def random_vocabulary(rng: np.random.Generator, precision: Precision, size: int, depth: int) -> Vocabulary:
    matrix = rng.normal(size=(size, depth)).astype(np.float32)
    tensors = FORMATS[precision].layouts["panels"].tensors("w", lambda: matrix, size, depth)
    weight, *scale = [tensor.make() for tensor in tensors.values()]
    weight = weight.view(np.uint16) if weight.itemsize == 2 else weight
    bias = rng.normal(size=size).astype(np.float32) if rng.random() < 0.5 else None
    return Vocabulary(precision, size, weight, scale[0] if scale else None, bias)


def random_scores(rng: np.random.Generator, batch: int, beam: int) -> NDArray[np.float32]:
    return -np.sort(rng.exponential(1, (batch, beam)), axis=-1).astype(np.float32)


def together(vocabulary: Vocabulary, x: Array, scores: Array, threads: int = 1) -> list[Array]:
    """ProjectCandidates."""
    inputs = [x, scores, np.array([scores.shape[1]]), vocabulary.weight, vocabulary.scale, vocabulary.bias]
    attributes: dict[str, Any] = {"precision": vocabulary.precision, "vocabulary": vocabulary.size}
    return run_node("ProjectCandidates", inputs, list(RESULTS.values()), threads=threads, **attributes)


def apart(vocabulary: Vocabulary, x: Array, scores: Array) -> list[Array]:
    """Project, then Candidates."""
    feeds = {"x": x, "scores": scores, "width": np.array([scores.shape[1]])}
    feeds |= {f"w{index}": value for index, value in enumerate(vocabulary.inputs)}
    attributes: dict[str, Any] = {"depth": x.ndim - 3, "parts": 1, "ranks": [1], "sizes": [vocabulary.size]}
    attributes |= {"bias": int(vocabulary.bias is not None), "precision": vocabulary.precision}
    attributes |= {"activation": "none", "norm": "none", "epsilon": 0.0}
    weights = [f"w{index}" for index in range(len(vocabulary.inputs))]
    nodes = [
        node("Project", ["x", "", "", "", *weights], ["logits"], **attributes),
        node("Candidates", ["logits", "scores", "width"], list(RESULTS)),
    ]
    session = cast(Any, kernel_session(nodes, {name: value.dtype for name, value in feeds.items()}, RESULTS))
    return session.run(list(RESULTS), feeds)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_is_candidates_of_the_projection(precision: Precision) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        size, depth = int(rng.choice([12, 33, 1000, 1024, 3001])), int(rng.choice([1, 6, 33, 64]))
        batch, beam = int(rng.choice([1, 3, 9, 40])), int(rng.integers(1, 6))
        vocabulary = random_vocabulary(rng, precision, size, depth)
        shape = (2, depth // 2) if depth % 2 == 0 else (depth,)
        x = rng.normal(0, rng.choice([0.1, 3]), (batch, beam, 1, *shape)).astype(np.float32)
        scores = random_scores(rng, batch, beam)
        expected = apart(vocabulary, x, scores)
        for threads in (1, 2):
            for found, right in zip(together(vocabulary, x, scores, threads), expected, strict=True):
                assert found.tobytes() == right.tobytes(), f"seed {seed}, {threads} threads"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sentence_depends_on_nothing_else(precision: Precision) -> None:
    rng = np.random.default_rng(1)
    vocabulary = random_vocabulary(rng, precision, 5000, 40)
    x, scores = rng.normal(size=(150, 4, 1, 40)).astype(np.float32), random_scores(rng, 150, 4)
    every = together(vocabulary, x, scores, threads=2)
    for i in (0, 70, 149):
        alone = together(vocabulary, x[i : i + 1], scores[i : i + 1])
        for one, row in zip(alone, every, strict=True):
            assert one[0].tobytes() == row[i].tobytes()


def test_a_batch_may_be_empty() -> None:
    vocabulary = random_vocabulary(np.random.default_rng(2), "int8", 50, 8)
    scores, tokens, _ = together(vocabulary, np.zeros((0, 2, 1, 8), np.float32), np.zeros((0, 2), np.float32))
    assert scores.shape == tokens.shape == (0, 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros((3, 1, 1, 10), np.float32)}, "x and scores do not fit"),
        ({"x": np.zeros((3, 2), np.float32)}, "x and scores do not fit"),
        ({"x": np.zeros((3, 2, 1, 0), np.float32)}, "x has no depth"),
        ({"x": np.zeros((3, 2, 1, 11), np.float32)}, "panels do not fit"),
        ({"scores": np.zeros(6, np.float32)}, "scores do not fit"),
        ({"width": np.array([0])}, "the beam's width must be at least 1"),
        ({"width": np.array([21])}, "the beam's width needs a vocabulary of 42 tokens"),
        ({"scale": np.zeros(40, np.float32)}, "a scale comes with integers"),
        ({"bias": np.zeros(39, np.float32)}, "bias needs one number for each token"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Array], message: str) -> None:
    right: dict[str, Array | None] = {
        "x": np.zeros((3, 2, 1, 10), np.float32),
        "scores": np.zeros((3, 2), np.float32),
        "width": np.array([2]),
        "weight": np.zeros((2, 10, 32), np.float32),
        "scale": None,
        "bias": None,
    }
    attributes: dict[str, Any] = {"precision": "float32", "vocabulary": 40}
    check_refused("ProjectCandidates", right, changed, message, list(RESULTS.values()), **attributes)
