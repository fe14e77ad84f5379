"""The stage of the attention weights that align a translation with its source."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.forward import BOUND
from xformc.compiler.certify.probes import Probes
from xformc.compiler.certify.subject import Subject
from xformc.compiler.pipeline import begin_alignments
from xformc.format.certificate import Stage
from xformc.format.names import ALIGNMENTS


def attention_stages(subject: Subject, probes: Probes, progress: Callable[[str], None]) -> Iterator[Stage]:
    """Compare the weights with those of the training form, in which no attention is fused, if the engine gives them:
    engines of fixed shapes, older ones, and those of models without such an attention do not."""
    session, program = subject.session.beside(ALIGNMENTS), begin_alignments(subject.program)
    if session is None or program is None:
        return
    progress("certify: alignments")
    module = TorchModule(program.graph).eval()
    module.load_arrays(subject.module.arrays())
    with torch.inference_mode():
        expected = module(*(torch.tensor(probes.feeds[value.name]) for value in program.graph.inputs)).numpy()
    (found,) = session.run(probes.feeds)
    same = found.shape == expected.shape
    value = difference(found[probes.real], expected[probes.real]) if same else np.inf
    what = "attention weights of translations on their sources, and those of the training form"
    yield Stage("attention", what, value, BOUND)
