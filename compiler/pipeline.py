"""The table of passes, and the loop that runs them.

Training, building, certifying, reporting and benchmarks differ only in the target and in the last pass they run.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import GraphError, verify
from xformc.compiler.ops.attention_weights import attentions_between
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.training import TRAINING_ONLY
from xformc.compiler.passes.alignment import alignment_graph, chosen_attention
from xformc.compiler.passes.beam_keys import with_lineage
from xformc.compiler.passes.coverage import COVERAGE, with_coverage
from xformc.compiler.passes.fuse import fuse_attention
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.linear_attention import fuse_linear_attention
from xformc.compiler.passes.lower import lower_decoder, lower_graph, screened_weights, split_vocabulary
from xformc.compiler.passes.narrow import narrow_attention
from xformc.compiler.passes.rows import by_row, grows, slots_hide, with_rows
from xformc.compiler.passes.scan import scan
from xformc.compiler.passes.share import share
from xformc.compiler.passes.step import derive_step, with_beam
from xformc.compiler.passes.tabulate import tabulate
from xformc.compiler.passes.with_loss import with_loss
from xformc.compiler.program import Program
from xformc.compiler.results.kind import KINDS
from xformc.compiler.spec import Spec
from xformc.compiler.spec.alignment import SOURCE, TARGET, chosen_by
from xformc.errors import UserError
from xformc.format.inputs import vocabularies_of
from xformc.format.precision import Precision
from xformc.format.targets import TARGETS, Target

logger = logging.getLogger(__name__)

CHECK = "XFORMC_CHECK_PASSES"
"""The environment variable that, set to 1, verifies every graph after every pass."""

FACTS: Mapping[str, Callable[[Program], bool]] = {
    "graph": lambda program: bool(program.graph.outputs),
    "loss": lambda program: [value.name for value in program.graph.outputs[:1]] == ["loss"],
    "no dropout": lambda program: not any(_has_dropout(graph) for graph in program.graphs),
    "decoder": lambda program: program.steps is not None,
    "beam": lambda program: program.steps is not None and "beam" in program.steps.token.type.names,
    "tabulated": lambda program: program.steps is None or "tabulate" in program.passed or by_row(program.steps),
    "lowered": lambda program: "lower" in program.passed,
}
"""The facts that a pass may require or ensure, with their checks."""


@dataclass(frozen=True)
class Pass:
    """One pass. `requires` and `ensures` are names of FACTS; it runs only if it `applies`."""

    name: str
    does: str
    run: Callable[[Program], Program]
    requires: tuple[str, ...] = ("graph",)
    ensures: tuple[str, ...] = ("graph",)
    applies: Callable[[Program], bool] = lambda program: True


def begin(
    spec: Spec, target: Target | None = None, precision: Mapping[str, Precision] = MappingProxyType({})
) -> Program:
    """The program of a spec before its first pass; without a target it is compiled for training."""
    return Program(spec, target, precision, Graph(spec.name, (), (), (), ()))


def run_passes(program: Program, *, after: str | None = None, without: Collection[str] = ()) -> Program:
    """Run the passes that still apply to the program, in order, up to and including `after`, or all of them.

    Passes in `without` are skipped for good; a later call does not run them.

    Raises: SpecError; RuleError at a step that cannot be decoded step by step.
    """
    assert {after, *without} <= {None, *(item.name for item in PASSES)}, f"no pass is called {after} or {without}"
    for item in _ahead(program):
        if item.name not in without and item.applies(program):
            program = _run(item, program)
        if item.name == after:
            break
    return program


def compile_spec(spec: Spec) -> Graph:
    """The training graph of a spec, from its inputs, such as source and target, to its logits.

    Raises: SpecError with the places in the spec.
    """
    return run_passes(begin(spec), after=SHARED).graph


def compile_training(spec: Spec) -> Program:
    """The program for training; `graph` returns the loss. Raises: SpecError."""
    return run_passes(begin(spec))


def compile_engine(
    spec: Spec, target: Target = "portable", precision: Mapping[str, Precision] = MappingProxyType({})
) -> Program:
    """The program of an engine before the target-specific passes; certificates compare against it.

    Raises: SpecError; RuleError at a step that cannot be decoded step by step.
    """
    return run_passes(begin(spec, target, precision), after=DERIVED)


def run_scores(program: Program) -> Program:
    """The program of the scores of given texts, from that of an engine.

    It has no beam, but the projection to logits is where the search has it. Raises: as `run_passes`.
    """
    program = run_passes(program, without=SEARCH)
    if not program.traits.kernels or program.decoding != "search":
        return program
    return replace(program, steps=split_vocabulary(program.decoder))


def run_samples(program: Program) -> Program | None:
    """The program that samples the texts which an engine searches for, from that of the engine; None without samples.

    Its weights have the forms of the search's. Raises: as `run_passes`.
    """
    return run_passes(program, without=SEARCH) if program.samples_texts else None


def run_beams(program: Program) -> Program | None:
    """The program that searches for continuations of prompts, from that of an engine which samples them.

    None without such a search. Its weights have the forms of those of sampling. Raises: as `run_passes`.
    """
    if not program.searches_prompts:
        return None
    try:
        steps = with_beam(program.decoder)
    except RuleError as error:
        logger.debug("no search for continuations: %s", error)
        return None
    return run_passes(replace(program, steps=steps), without=("beam",))


def run_rows(program: Program) -> Program | None:
    """The program of a batch whose rows are at positions of their own, from that of an engine.

    None if the engine has no such batches: a state would be one of all rows, or would grow with the furthest row,
    or the sources of a search would have to be of one length. Without kernels the caches are fixed, but the step of
    several tokens has those that grow; searches have such batches with kernels only.
    """
    if program.refills_searches:
        return _run_search_rows(program)
    if not program.streams:
        return None
    growing, time = program.decoder, str(program.written)
    try:
        single = growing if program.traits.kernels else derive_step(program.graph, time, fixed=True)
        steps = with_rows(replace(single, extend=growing.extend, vocabularies=growing.vocabularies))
    except RuleError as error:
        logger.debug("no batches that refill: %s", error)
        return None
    program = run_passes(replace(program, steps=steps), without=("tabulate",))
    return None if grows(program.decoder) else program


def _run_search_rows(program: Program) -> Program | None:
    program = run_passes(program, after="beam")
    try:
        program = replace(program, steps=with_rows(program.decoder))
    except RuleError as error:
        logger.debug("no batches that refill: %s", error)
        return None
    program = run_passes(program, without=("tabulate",))
    return program if slots_hide(program.decoder) and not grows(program.decoder) else None


def begin_alignments(program: Program) -> Program | None:
    """The program of the attention weights that align a translation with its source, before its passes; from that of an
    engine. None if the engine gives no alignments.

    The weights are an output, so nothing in their attention is fused. Raises: SpecError.
    """
    if program.task != "translation" or program.traits.fixed:
        return None
    graph = inference(program.spec.graph())
    aligned = alignment_graph(graph, TARGET, SOURCE, chosen_by(program.spec.decode.alignment))
    begun = begin(program.spec, program.target, program.precision)
    screened = _screened(program)
    return None if aligned is None else replace(begun, graph=aligned, screened=screened, passed=("elaborate",))


def covered_attention(program: Program) -> Graph:
    """The training form of the attention weights whose coverage of the source the search weighs, the mean over the
    heads: [batch, target, source]."""
    found = alignment_graph(inference(program.spec.graph()), TARGET, SOURCE, chosen_by(program.spec.decode.coverage))
    assert found is not None and program.covering is not None, "the search has no coverage"
    return found


def run_alignments(program: Program) -> Program:
    """Run the passes of a program of `begin_alignments`: those of a forward pass."""
    return run_passes(program, without=("step",))


def applied_passes(program: Program) -> Iterator[tuple[Pass, Program]]:
    """Run the remaining passes; yield each with the program after it. Raises: as `run_passes`, at that pass."""
    for item in _ahead(program):
        if item.applies(program):
            program = _run(item, program)
            yield item, program


def print_program(program: Program, after: str) -> str:
    """The text of a new program's graphs after this pass.

    Raises: UserError if the pass does not run for the program; as `run_passes`.
    """
    if after not in NAMES:
        raise UserError(f"there is no pass '{after}'", hint=f"the passes are {', '.join(NAMES)}")
    found = run_passes(program, after=after)
    if after not in found.passed:
        goal = "training" if program.target is None else f"target {program.target}"
        raise UserError(f"the pass {after} is not used for {program.task} and {goal}", hint=_where(program.spec, after))
    return "\n".join(text.format(graph) for graph in found.graphs)


def _where(spec: Spec, name: str) -> str:
    """A hint: the options with which this pass runs for the spec."""
    for target in (None, *TARGETS):
        if name in run_passes(begin(spec, target), after=name).passed:
            return "add --training" if target is None else f"add --target {target}"
    return f"no target of a {spec.task} model needs it"


def _ahead(program: Program) -> tuple[Pass, ...]:
    """The passes after the last one that ran on the program."""
    last = program.passed[-1] if program.passed else None
    return PASSES[next((index for index, item in enumerate(PASSES, start=1) if item.name == last), 0) :]


def _run(item: Pass, program: Program) -> Program:
    _require(item, "requires", item.requires, program)
    start = time.perf_counter()
    result = replace(item.run(program), passed=(*program.passed, item.name))
    nodes, seconds = sum(len(graph.nodes) for graph in result.graphs), time.perf_counter() - start
    logger.debug("pass %s: %d nodes, %.2f s", item.name, nodes, seconds)
    _require(item, "ensures", item.ensures, result)
    if os.environ.get(CHECK) == "1":
        for graph in (result.graph, *result.graphs):
            verify(graph)
    return result


def _require(item: Pass, word: str, facts: Collection[str], program: Program) -> None:
    wrong = [fact for fact in facts if not FACTS[fact](program)]
    if wrong:
        raise GraphError(f"the pass {item.name} {word} {', '.join(wrong)}: after {', '.join(program.passed)}")


def _elaborate(program: Program) -> Program:
    graph, decode = program.spec.graph(), program.spec.decode
    if not _is_engine(program) or program.traits.fixed or not decode.covers or program.task != "translation":
        return replace(program, graph=graph)
    _, found = attentions_between(inference(graph), TARGET, SOURCE)
    one = chosen_attention(found, chosen_by(decode.coverage))
    return replace(program, graph=graph, covering=None if one is None else one.value.name)


def _has_dropout(graph: Graph) -> bool:
    """Whether a graph, or the cell of a recurrence in it, has dropout or another op that only training has."""
    return any(
        isinstance(node.op, TRAINING_ONLY) or (isinstance(node.op, Recurrence) and _has_dropout(node.op.body))
        for node in graph.nodes
    )


def _lower(program: Program) -> Program:
    if program.steps is None:
        return replace(program, graph=lower_graph(program.graph, program.precision_of, program.screened))
    screened = _screened(program)
    steps = lower_decoder(program.steps, program.precision_of, screened, program.caches)
    return replace(program, steps=steps, screened=screened)


def _screened(program: Program) -> frozenset[str]:
    """The weights that the search screens, before its decoder is lowered."""
    if program.decoding != "search" or not program.traits.kernels:
        return frozenset()
    return screened_weights(program.decoder, program.precision_of)


def _derive(program: Program) -> Program:
    time, late = str(program.written), program.of_text
    for declared, value in zip(program.spec.results, program.graph.outputs, strict=True):
        if late is not None and value in late.outputs and KINDS[declared.kind].decoded:
            place = program.graph.producers()[value.name].place
            message = f"{declared.name} is a result of CTC that depends on '{time}', which the engine writes"
            raise RuleError(message, hint="compute it from the other inputs", place=place)
    steps = derive_step(program.graph, time, fixed=program.traits.fixed)
    return replace(program, steps=replace(steps, vocabularies=vocabularies_of(program.inputs, time)))


def _widen(program: Program) -> Program:
    """Fixed caches stay where they are, unless something reads them that a mask of each hypothesis does not fit."""
    if program.traits.fixed:
        try:
            return replace(program, steps=with_lineage(program.decoder))
        except RuleError as error:
            logger.debug("caches move with their hypotheses: %s", error)
    return replace(program, steps=with_beam(program.decoder))


def _cover(program: Program) -> Program:
    pad = program.inputs[SOURCE].special.absent
    covered = with_coverage(program.graph, str(program.covering), TARGET, SOURCE, pad)
    steps = derive_step(covered, TARGET, beside=COVERAGE)
    return replace(program, steps=replace(steps, vocabularies=program.decoder.vocabularies))


def _is_engine(program: Program) -> bool:
    return program.target is not None


def _decodes(program: Program) -> bool:
    return _is_engine(program) and program.written is not None


def _searches(program: Program) -> bool:
    return program.steps is not None and program.decoding == "search"


PASSES: tuple[Pass, ...] = (
    Pass("elaborate", "Expand the spec's blocks into nodes.", _elaborate, requires=()),
    Pass("share", "Merge identical nodes.", lambda p: replace(p, graph=share(p.graph))),
    Pass(
        "fuse",
        "Replace scaled dot-product attention with one op.",
        lambda p: replace(p, graph=fuse_attention(p.graph, arranged=not p.traits.kernels, plain=p.covering)),
    ),
    Pass(
        "hoist",
        "Move nodes that need no state out of the bodies of recurrences.",
        lambda p: replace(p, graph=hoist(p.graph)),
    ),
    Pass(
        "scan",
        "Compute linear recurrences at all positions at once.",
        lambda p: replace(p, graph=scan(p.graph)),
        applies=lambda p: not _is_engine(p),
    ),
    Pass(
        "linear_attention",
        "Compute queries on running sums of outer products by matrix products.",
        lambda p: replace(p, graph=fuse_linear_attention(p.graph)),
        applies=lambda p: not _is_engine(p),
    ),
    Pass(
        "loss",
        "Add the labels and the loss, fused with the last projection.",
        lambda p: replace(
            p, graph=with_loss(p.graph, p.spec.results, p.spec.train.label_smoothing, p.spec.train.r_drop or 0.0)
        ),
        ensures=("loss",),
        applies=lambda p: not _is_engine(p),
    ),
    Pass(
        "inference",
        "Remove dropout.",
        lambda p: replace(p, graph=inference(p.graph)),
        ensures=("no dropout",),
        applies=_is_engine,
    ),
    Pass(
        "step",
        "Split the graph into the part that runs once and the part that runs per token.",
        _derive,
        requires=("no dropout",),
        ensures=("decoder",),
        applies=_decodes,
    ),
    Pass(
        "coverage",
        "Carry how much of the source each text has looked at, for the coverage penalty.",
        _cover,
        requires=("decoder",),
        ensures=("decoder",),
        applies=lambda p: _searches(p) and p.covering is not None,
    ),
    Pass(
        "beam",
        "Add the axis beam to the token, the states that move, and what depends on them; fixed caches stay.",
        _widen,
        requires=("decoder",),
        ensures=("beam",),
        applies=_searches,
    ),
    Pass(
        "narrow",
        "Store keys and values in float16 that rounded matrix products have made.",
        lambda p: replace(p, steps=narrow_attention(p.decoder, p.precision_of, p.traits)),
        requires=("decoder",),
        ensures=("decoder",),
        applies=lambda p: p.traits.typed and p.steps is not None,
    ),
    Pass(
        "tabulate",
        "Precompute values that depend only on the position, for all positions.",
        lambda p: replace(p, steps=tabulate(p.decoder)),
        requires=("decoder",),
        ensures=("tabulated",),
        applies=lambda p: p.traits.kernels and p.steps is not None,
    ),
    Pass(
        "lower",
        "Replace nodes that one kernel computes with one node; update caches in place.",
        _lower,
        requires=("no dropout", "tabulated"),
        ensures=("lowered",),
        applies=lambda p: p.traits.kernels,
    ),
    Pass(
        "candidates",
        "Move the projection to logits into the search, which computes candidates in one kernel.",
        lambda p: replace(p, steps=split_vocabulary(p.decoder)),
        requires=("beam", "lowered"),
        ensures=("beam",),
        applies=lambda p: p.traits.kernels and FACTS["beam"](p),
    ),
)
"""All passes in order. A new pass is a file in `passes/` and a row here."""

NAMES = tuple(item.name for item in PASSES)
SHARED, DERIVED = "hoist", "step"
"""The last pass that training and engines share, and the last one that a certificate compares."""

SEARCH = ("coverage", "beam", "candidates")
"""The passes that only searches need."""
