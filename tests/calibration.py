"""Calibration examples for a spec: those of its certificate, one at a time."""

from xformc.compiler.certify.probes import make_probes
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.calibration import Example
from xformc.compiler.spec import Spec
from xformc.runtime.rows import stack


def probe_examples(spec: Spec) -> list[Example]:
    """Random examples of different lengths, without padding."""
    compiled = compile_engine(spec, "tensorrt")
    return [stack(compiled.inputs, [row]) for row in make_probes(compiled).rows]
