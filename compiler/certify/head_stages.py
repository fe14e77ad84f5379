"""The stage of the results that an engine computes beside the text that it writes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.alignment_stages import alignments, apart, reference
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.forward_stages import BOUND, expected_results
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.tokens import BEGIN
from xformc.runtime.rows import Row, stack


def head_stage(subject: Subject, sources: Sequence[Row], found: Mapping[str, NDArray[Any]]) -> Stage:
    """Compare the engine's other results for these sources, by output, with those of the training form."""
    program = subject.program
    begun = {str(program.written): np.full((len(sources), 1), BEGIN, np.int64)}
    values = subject.results({**stack(program.given, sources), **begun})
    expected = expected_results(program, values)
    differences = [difference(found[name], array) for name, array in expected.items()]
    for place, declared in alignments(program):
        outputs = [found[name] for name in program.results[declared.name].outputs]
        differences.append(apart(outputs, reference(values[place], declared)))
    return Stage("results", "the other results of the engine and of PyTorch", max(differences), BOUND)
