"""The stages of the results that an engine computes beside the text that it writes, and of those that depend on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.ctc_stages import apart, by_ctc, reference
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.forward_stages import BOUND, expected_results
from xformc.compiler.certify.subject import Feeds, Subject
from xformc.format.certificate import Stage
from xformc.format.results import beside_text
from xformc.runtime.rows import Row, stack
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.searching.translate import results_of_text, text_rows
from xformc.runtime.session import Session


def head_stages(
    subject: Subject, sources: Sequence[Row], search: Callable[[], SearchResult], progress: Callable[[str], None]
) -> Iterator[Stage]:
    """Compare the engine's other results for these sources with the training form's; `search` writes their texts.

    `results`: those beside the text. `text`: those that depend on it, of the texts found.
    """
    results, special = subject.program.results, subject.special
    if len(results) == 1:
        return
    found = search()
    if beside_text(results):
        progress("certify: results")
        begun = {str(subject.program.written): np.full((len(sources), 1), (*special.begun, special.fill)[0], np.int64)}
        feeds = {**stack(subject.program.given, sources), **begun}
        worst = max(_apart(subject, found.others, feeds))
        yield Stage("results", "the other results of the engine and of PyTorch", worst, BOUND)
    if subject.session.of_text is not None:
        progress("certify: text")
        rows = text_rows(str(subject.program.written), special, sources, found.texts())
        yield _text_stage(subject, subject.session.of_text, rows)


def _text_stage(subject: Subject, session: Session, rows: Sequence[Row]) -> Stage:
    """Compare the results of these texts, together and each alone."""
    program = subject.program
    together = results_of_text(session, rows, program)
    differences = list(_apart(subject, together, stack(program.inputs, rows)))
    for place, row in enumerate(rows):
        for name, (array, *_) in results_of_text(session, [row], program).items():
            differences.append(difference(_cut(together[name][place], array), array))
    what = "results of the texts found, of the engine and of PyTorch"
    return Stage("text", what, max(differences), BOUND, f"({len(rows)} texts, alone and together)")


def _apart(subject: Subject, found: Mapping[str, NDArray[Any]], feeds: Feeds) -> Iterator[float]:
    """The differences of the outputs found, by name, from those of the training form."""
    values = subject.results(feeds)
    for name, array in expected_results(subject.program, values).items():
        if name in found:
            yield difference(found[name], array)
    for place, declared in by_ctc(subject.program):
        names = subject.program.results[declared.name].outputs
        if found.keys() >= set(names):
            yield apart([found[name] for name in names], reference(values[place], declared))


def _cut(padded: NDArray[Any], alone: NDArray[Any]) -> NDArray[Any]:
    return padded[tuple(slice(size) for size in alone.shape)]
