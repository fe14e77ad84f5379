"""Compares the results of an engine that quantizes inputs with its training form, quantized as defined."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.ctc_stages import best_scores, by_ctc
from xformc.compiler.certify.forward_stages import Found, alone_and_together, expected_at, flat, real_results, word_of
from xformc.compiler.certify.probes import make_probes, make_sources
from xformc.compiler.certify.product_stages import noise_bound
from xformc.compiler.certify.reference_search import opening_of, rescore
from xformc.compiler.certify.reference_shortlist import search_scorer
from xformc.compiler.certify.sampling_stages import GREEDY, UNEDITED, followed, make_prompts
from xformc.compiler.certify.subject import Subject
from xformc.compiler.certify.translation_stages import LENGTHS, short
from xformc.compiler.program import Program
from xformc.format.certificate import Stage
from xformc.format.manifest import SearchOptions
from xformc.format.names import SAMPLES, SCORES
from xformc.runtime.rows import Row, stack
from xformc.runtime.score import token_scores, total
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.searching.translate import SEED, sample_rows

Scores = NDArray[np.float32]
Texts = list[tuple[int, ...]]


def result_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """`results`: scores of the engine against the training form; `alone`: the same examples alone and in a batch."""
    yield from _RESULTS[subject.program.decoding](subject, progress)


def _translations(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    sources = make_sources(subject.program, LENGTHS)
    options = short(subject.program.search, subject.program.search.beam_size)
    progress("certify: results")
    together = subject.search_rows(sources, options)
    rounded, exact = list[float](), list[float]()
    for row, source in enumerate(sources):
        for tokens in together.texts()[row]:
            for form, scores in ((subject.rounding, rounded), (subject, exact)):
                given = (search_scorer(form, source), form.special, tuple(tokens), options)
                scores.append(rescore(*given, opening=opening_of(form.program), coverage=form.coverage(source)))
    bound = noise_bound(np.array(rounded), np.array(exact))
    what = "scores of the engine's hypotheses and of the training form"
    yield Stage("results", what, _worst(together.scores.reshape(-1), np.array(rounded)), bound, _counted(rounded))
    progress("certify: alone")
    alone = [subject.search_rows([source], options) for source in sources]
    pairs = [
        ((together.texts()[row], together.scores[row]), (found.texts()[0], found.scores[0]))
        for row, found in enumerate(alone)
    ]
    yield _batch(pairs, bound, "sentences")
    if subject.session.beside(SCORES) and not subject.program.prompted and subject.program.shortlist is None:
        progress("certify: texts")
        yield _beside(subject, sources, options, bound)


def _beside(subject: Subject, sources: Sequence[Row], options: SearchOptions, bound: float) -> Stage:
    """The model of scores beside the search and beside the samples at temperature 0: texts have the scores with which
    they were found."""
    program, changes = subject.program, {"length_penalty": 0.0}
    changes |= {} if options.coverage_penalty is None else {"coverage_penalty": 0.0}
    found = [subject.search_rows(sources, replace(options, **changes))]
    if session := subject.session.beside(SAMPLES):
        rows = [{**source, SEED: np.array(0)} for source in sources]
        found.append(sample_rows(session, rows, program, replace(GREEDY, **UNEDITED)))
    worst, count = 0.0, 0
    for one in found:
        given = [(row, tokens[0]) for row, tokens in enumerate(one.texts()) if tokens]
        scored = token_scores(subject.session, [sources[row] for row, _ in given], [text for _, text in given], program)
        sums = np.array([total(scores) for scores in scored], np.float32)
        worst = max(worst, _worst(one.scores[[row for row, _ in given], 0], sums))
        count += len(given)
    return Stage(
        "texts", "scores of the engine's texts and samples, by its model of scores", worst, bound, f"({count} texts)"
    )


def _continuations(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    program, prompts = subject.program, make_prompts(subject, 0)
    progress("certify: results")
    together = sample_rows(subject.session, prompts, program, GREEDY)

    def scores(form: Subject) -> Scores:
        found = zip(prompts, _texts(together), strict=True)
        return np.array([followed(form, row, text, GREEDY).score for row, text in found])

    rounded, exact = scores(subject.rounding), scores(subject)
    bound = noise_bound(rounded, exact)
    what = "scores of the engine's continuations and of the training form"
    yield Stage("results", what, _worst(together.scores[:, 0], rounded), bound, _counted(rounded))
    progress("certify: alone")
    alone = [sample_rows(subject.session, [prompt], program, GREEDY) for prompt in prompts]
    pairs = [
        (([_texts(together)[row]], together.scores[row, 0]), (_texts(found), found.scores[0, 0]))
        for row, found in enumerate(alone)
    ]
    yield _batch(pairs, bound, "prompts")


def _texts(found: SearchResult) -> Texts:
    return [tokens[0] for tokens in found.texts() if tokens]


def _forward(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    program = subject.program
    probes, labels = make_probes(program), word_of(program) == "labels"
    progress("certify: results")
    found = subject.outputs(probes.feeds)
    together = flat(_with_best(program, real_results(program, probes, found), _best(program, found)))
    rounded, exact = (
        flat(_with_best(program, expected_at(form, probes), best_scores(form.results(probes.feeds), program)))
        for form in (subject.rounding, subject)
    )
    bound = noise_bound(rounded, exact)
    what = f"{'probabilities' if labels else 'results'} of the engine and of the training form"
    yield Stage("results", what, _worst(together, rounded), bound)
    progress("certify: alone")
    worst = max(alone_and_together(subject, probes), default=0.0)
    for index, row in enumerate(probes.rows):
        pairs = zip(_best(program, subject.outputs(stack(program.inputs, [row]))), _best(program, found), strict=True)
        worst = max(worst, *(_worst(one, both[index : index + 1]) for one, both in pairs), 0.0)
    yield Stage("alone", "the same examples alone and among longer ones", worst, bound)


def _best(program: Program, found: Found) -> list[Scores]:
    """The engine's score of the best hypothesis of each example, for each result by CTC."""
    return [found[program.results[item.name].outputs[-1]][:, 0] for _, item in by_ctc(program)]


def _with_best(program: Program, found: Found, best: Sequence[Scores]) -> Found:
    return {**found, **{item.name: scores for (_, item), scores in zip(by_ctc(program), best, strict=True)}}


_RESULTS: dict[str, Callable[[Subject, Callable[[str], None]], Iterator[Stage]]] = {
    "search": _translations,
    "sample": _continuations,
    "forward": _forward,
}

_Result = tuple[Texts, NDArray[np.float32]]


def _batch(pairs: Sequence[tuple[_Result, _Result]], bound: float, name: str) -> Stage:
    """Compare the scores of examples with the same tokens alone and in a batch; rounding may change some tokens."""
    same = [(first, second) for first, second in pairs if first[0] == second[0]]
    worst = max((_worst(first[1], second[1]) for first, second in same), default=float("inf"))
    what = f"the same {name} alone and among others"
    return Stage("alone", what, worst, bound, f"({len(same)} of {len(pairs)} with the same tokens)")


def _worst(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    worst = float(np.abs(found - expected).max(initial=0))
    return worst if np.isfinite(worst) else float("inf")


def _counted(scores: Sequence[float] | Scores) -> str:
    return f"({len(scores)} scores)"
