"""The stages of an engine that predicts labels."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.forward import forward_stage
from xformc.compiler.certify.locate import difference
from xformc.compiler.certify.probes import Probes, make_probes
from xformc.compiler.certify.subject import Feeds, Subject
from xformc.format.certificate import Stage
from xformc.runtime.rows import stack

BOUND = 1e-4
"""The bound of probabilities."""


def label_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """Compare logits of PyTorch and ONNX, probabilities of engine and PyTorch, and examples alone and in a batch."""
    probes = make_probes(subject.program)
    progress("certify: forward")
    yield forward_stage(subject, probes, "logits of ONNX and PyTorch")
    progress("certify: labels")
    yield _labels(subject, probes)
    progress("certify: batch")
    yield _batch(subject, probes)


def probabilities(subject: Subject, feeds: Feeds) -> NDArray[np.float32]:
    """The probabilities that the engine returns."""
    (found,) = subject.session.run(feeds)
    return found


def expected_probabilities(subject: Subject, probes: Probes) -> NDArray[np.float32]:
    """The probabilities of the training form at positions that are not padding."""
    logits = subject.logits(probes.feeds)[probes.real]
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _labels(subject: Subject, probes: Probes) -> Stage:
    expected = expected_probabilities(subject, probes)
    found = probabilities(subject, probes.feeds)[probes.real]
    return Stage("labels", "probabilities of the engine and of PyTorch", difference(found, expected), BOUND)


def _batch(subject: Subject, probes: Probes) -> Stage:
    together = probabilities(subject, probes.feeds)
    worst = 0.0
    for row, found in zip(probes.rows, together, strict=True):
        alone = probabilities(subject, stack(subject.program.inputs, [row]))[0]
        part = found if subject.program.positions is None else found[: len(alone)]
        worst = max(worst, difference(part, alone))
    return Stage("batch", "the same examples alone and among longer ones", worst, BOUND)
