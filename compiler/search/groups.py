"""Groups of diverse beams (Vijayakumar et al. 2018), as ONNX operators: the search that docs/search.md defines.

A group is a beam of its own. For the choices of a step, each group counts as a sentence: [batch * groups, ..].
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.candidates import (
    BeamOptions,
    Candidates,
    Chosen,
    Pool,
    Rules,
    Settled,
    Standing,
    Texts,
    choose_open,
    select,
    settle,
)
from xformc.compiler.search.carried import NEVER

_BATCH, _FLOAT, _INT64, _BOOL = Axis("batch"), 1, 7, 9

Continued = Callable[[OnnxEmitter, str, str, str], str]


@dataclass(frozen=True)
class Groups:
    """The number of groups, the hypotheses of each, both as vectors, and whether there are several, a scalar.

    penalty: the diversity penalty of each sentence, [batch].
    """

    count: str
    width: str
    several: str
    penalty: str


@dataclass(frozen=True)
class Step:
    """What the groups choose from: logits [batch, beam, 1, vocabulary], and the scores [batch, beam] and texts of the
    hypotheses.

    given: the candidates, of which some may have the score 0 or may not end; see `unscored` and `read_on`.
    coverage: see `emit_coverage`."""

    logits: str
    scores: str
    texts: Texts
    given: Callable[[OnnxEmitter, Candidates], Candidates]
    coverage: str | None = None


def emit_groups(onnx: OnnxEmitter, count: str, width: str, penalty: str) -> Groups:
    """Write the sizes of the groups; `count` is a scalar, `width` that of the beam, a vector."""
    several, count = onnx.op("Greater", count, 1), onnx.op("Unsqueeze", count, [0])
    return Groups(count, onnx.op("Div", width, count), several, penalty)


def choose(
    onnx: OnnxEmitter, options: BeamOptions, groups: Groups, step: Step, now: Standing, continued: Continued
) -> Settled:
    """Choose the next hypotheses in groups, or, if there is only one, from all; `now.found` is [batch, groups].

    `continued(scope, texts, rows, tokens)` returns the texts of these rows, each followed by one of the tokens. Neither
    branch has an `If` of its own: ONNX Runtime fails to inline a branch that has, where an input is a constant.
    """

    def in_groups(scope: OnnxEmitter) -> tuple[str, ...]:
        return _names(_in_groups(scope, options, groups, step, now, continued))

    candidates = step.given(onnx, select(onnx, step.logits, step.scores, options, step.texts))

    def from_all(scope: OnnxEmitter) -> tuple[str, ...]:
        alone = replace(now, found=scope.op("Squeeze", now.found, [1]))
        new = settle(scope, options, alone, candidates, partial(continued, scope, step.texts.tokens))
        return _names(replace(new, found=scope.op("Unsqueeze", new.found, [1])))

    done, found, *rest = onnx.choose(groups.several, in_groups, from_all, _SETTLED)
    return Settled(done, found, Pool(*rest[:3]), Chosen(*rest[3:6]), rest[6])


_SETTLED: tuple[DType, ...] = (
    "bool", "int64", "int64", "int64", "float32", "float32", "int64", "int64", "int64",
)  # fmt: skip


def _names(new: Settled) -> tuple[str, ...]:
    pool, chosen = new.pool, new.chosen
    of_pool, of_chosen = (pool.tokens, pool.lengths, pool.scores), (chosen.scores, chosen.tokens, chosen.rows)
    return (new.done, new.found, *of_pool, *of_chosen, new.tokens)


def _in_groups(
    onnx: OnnxEmitter, options: BeamOptions, groups: Groups, step: Step, now: Standing, continued: Continued
) -> Settled:
    """Choose apart in each group. The hypotheses of a group that is done have the score NEVER."""
    own = replace(
        options, width=groups.width, candidates=onnx.op("Mul", groups.width, [options.special.choices]), phrases=None
    )
    candidates = _candidates(onnx, own, groups, step)
    sentences = onnx.op("Range", 0, onnx.op("Size", now.found), 1)
    sentences = onnx.op("Div", sentences, groups.count)

    def each(name: str) -> str:
        """A value of each sentence as one of each group."""
        return onnx.op("Gather", name, sentences, axis=0)

    def apart(name: str) -> str:
        """Values of the hypotheses [batch, beam, ..] as those of groups."""
        tail = onnx.op("Shape", name, start=2)
        return onnx.op("Reshape", name, onnx.op("Concat", [-1], groups.width, tail, axis=0))

    rules = options.needed_rules
    own = replace(
        own,
        length_penalty=each(options.length_penalty),
        rules=Rules(*(each(name) for name in (rules.penalty_offset, rules.stop_rule, rules.patience))),
    )
    assert now.least is not None
    folded = replace(
        now,
        limit=each(now.limit),
        done=each(now.done),
        least=each(now.least),
        given=None if now.given is None else each(now.given),
        found=onnx.op("Reshape", now.found, [-1]),
        pool=Pool(*(apart(name) for name in (now.pool.tokens, now.pool.lengths, now.pool.scores))),
        coverage=None if now.coverage is None else apart(now.coverage),
    )
    return _together(
        onnx, settle(onnx, own, folded, candidates, partial(continued, onnx, step.texts.tokens)), options, now.found
    )


def _together(onnx: OnnxEmitter, new: Settled, options: BeamOptions, found: str) -> Settled:
    """The choices of the groups as those of sentences, which are done when all of their groups are."""
    shape = onnx.op("Shape", found)
    scores = onnx.op("Where", onnx.op("Unsqueeze", new.done, [1]), NEVER, new.chosen.scores)

    def together(name: str) -> str:
        size = onnx.op("Concat", [-1], options.width, onnx.op("Shape", name, start=2), axis=0)
        return onnx.op("Reshape", name, size)

    done = onnx.op("Reshape", onnx.op("Cast", new.done, to=_INT64), shape)
    return Settled(
        onnx.op("Cast", onnx.op("ReduceMin", done, [1], keepdims=0), to=_BOOL),
        onnx.op("Reshape", new.found, shape),
        Pool(*(together(name) for name in (new.pool.tokens, new.pool.lengths, new.pool.scores))),
        Chosen(*(together(name) for name in (scores, new.chosen.tokens, new.chosen.rows))),
        together(new.tokens),
    )


def _candidates(onnx: OnnxEmitter, options: BeamOptions, groups: Groups, step: Step) -> Candidates:
    """The candidates of each group, [batch * groups, ..], one group after the other: each sees what the earlier ones
    go on with. Parents are counted in the group."""
    vocabulary = onnx.op("Shape", step.logits, start=3)
    nothing = onnx.op("Expand", 0.0, onnx.op("Concat", onnx.op("Shape", step.texts.forced), vocabulary, axis=0))
    penalty = onnx.op("Unsqueeze", groups.penalty, [1])

    def group(scope: OnnxEmitter, index: str, carried: list[str]) -> tuple[str, list[str], list[tuple[Type, str]]]:
        (uses,) = carried
        first = scope.op("Mul", groups.width, index)
        bounds = (first, scope.op("Add", first, groups.width), [1])
        names = (step.logits, step.scores, step.texts.tokens)
        logits, scores, tokens = (scope.op("Slice", name, *bounds) for name in names)
        texts = replace(step.texts, tokens=tokens)
        taken = scope.op("Unsqueeze", scope.op("Mul", uses, penalty), [1, 2])
        found = step.given(scope, select(scope, logits, scores, options, texts, taken=taken))
        chosen = choose_open(scope, found, groups.width)
        here = scope.op("Cast", scope.op("Greater", chosen.scores, NEVER), to=_FLOAT)
        uses = scope.op("ScatterElements", uses, chosen.tokens, here, axis=1, reduction="add")
        several = (_BATCH, Axis("candidates"))
        collected = [(Type("float32", several), found.scores)]
        collected += [(Type("int64", several), name) for name in (found.tokens, found.parents)]
        collected += [(Type("bool", several), found.ended)]
        return scope.op("Identity", True), [uses], collected

    uses = Type("float32", (_BATCH, Axis("vocabulary")))
    trips = onnx.op("Squeeze", groups.count)
    _, *lists = onnx.loop(trips, [(uses, nothing)], group)
    shape = onnx.op("Concat", [-1], options.candidates, axis=0)
    return Candidates(*(onnx.op("Reshape", onnx.op("Transpose", name, perm=[1, 0, 2]), shape) for name in lists))
