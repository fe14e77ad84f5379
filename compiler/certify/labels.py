"""The stages of an engine that gives labels."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.certificate import Stage
from xformc.compiler.certify.forward import forward_stage
from xformc.compiler.certify.locate import difference
from xformc.compiler.certify.probes import Probes, make_probes
from xformc.compiler.certify.subject import Feeds, Subject
from xformc.runtime.rows import stack

BOUND = 1e-4
"""Of probabilities."""


def label_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """Logits by PyTorch and ONNX; probabilities of the engine by PyTorch; each example alone and in a batch."""
    probes = make_probes(subject.compiled)
    progress("certify: forward")
    yield forward_stage(subject, probes, "logits of ONNX and PyTorch")
    progress("certify: labels")
    yield _labels(subject, probes)
    progress("certify: batch")
    yield _batch(subject, probes)


def _labels(subject: Subject, probes: Probes) -> Stage:
    logits = subject.logits(probes.feeds)[probes.real]
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    expected = shifted / shifted.sum(-1, keepdims=True)
    found = _probabilities(subject, probes.feeds)[probes.real]
    return Stage("labels", "probabilities of the engine and of PyTorch", difference(found, expected), BOUND)


def _batch(subject: Subject, probes: Probes) -> Stage:
    together = _probabilities(subject, probes.feeds)
    worst = 0.0
    for row, found in zip(probes.rows, together, strict=True):
        alone = _probabilities(subject, stack(subject.compiled.inputs, [row]))[0]
        part = found if subject.compiled.positions is None else found[: len(alone)]
        worst = max(worst, difference(part, alone))
    return Stage("batch", "the same examples alone and among longer ones", worst, BOUND)


def _probabilities(subject: Subject, feeds: Feeds) -> NDArray[np.float32]:
    (probabilities,) = subject.session.run(feeds)
    return probabilities
