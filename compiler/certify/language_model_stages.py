"""The stages of an engine that samples."""

from collections.abc import Callable, Iterator

from xformc.compiler.certify.beam_stage import beam_stage
from xformc.compiler.certify.forward import extend_stage, forward_stage, scores_stages, step_stage
from xformc.compiler.certify.head_stages import head_stages
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.certify.sampling_stages import GREEDY, make_prompts, sampling_stages
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.names import BEAMS
from xformc.runtime.searching.translate import sample_rows


def language_model_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """The stages, cheapest first; the sampling stages are meaningful only if the first two pass."""
    probes = make_probes(subject.program)
    progress("certify: forward")
    yield forward_stage(subject, probes, "logits of ONNX and PyTorch, given the text")
    progress("certify: step")
    yield step_stage(subject, probes)
    if subject.program.decoder.extend is not None:
        progress("certify: extend")
        yield extend_stage(subject, probes)
    yield from scores_stages(subject, probes, progress)
    yield from sampling_stages(subject, progress)
    if subject.program.searches_prompts and subject.session.beside(BEAMS):
        progress("certify: beams")
        yield beam_stage(subject)
    prompts = make_prompts(subject, 0)
    yield from head_stages(
        subject, prompts, lambda: sample_rows(subject.session, prompts, subject.program, GREEDY), progress
    )
