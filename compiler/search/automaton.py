"""Texts that match an automaton, as ONNX operators: which tokens may follow, as docs/search.md defines it."""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.carried import NEVER

_INT64 = 7
_STATES = Type("int64", (Axis("batch"), Axis("hypotheses")))


@dataclass(frozen=True)
class Automaton:
    """The ONNX names of an automaton: the state after each state and token, int32 [states, vocabulary], the fewest
    tokens to the end of a text [states], the first state of each sentence [batch], and whether there are states."""

    next: str
    needs: str
    start: str
    used: str


def emit_room(onnx: OnnxEmitter, limit: str, begun: str, automaton: Automaton, longest: int | None) -> str:
    """The limit of each sentence [batch] with room for a text that matches, after `begun` tokens, and an end token."""
    needs = onnx.op("Concat", automaton.needs, [0], axis=0)  # without an automaton there are none
    state = onnx.op("Max", onnx.op("Min", automaton.start, onnx.op("Size", automaton.needs)), 0)
    needed = onnx.op("Add", onnx.op("Add", begun, onnx.op("Gather", needs, state, axis=0)), 1)
    needed = needed if longest is None else onnx.op("Min", needed, longest)
    free = onnx.op("Less", automaton.start, 0)
    return onnx.op("Where", free, limit, onnx.op("Max", limit, needed))


def only_allowed(onnx: OnnxEmitter, scores: str, texts: str, automaton: Automaton, skipped: str, limit: str) -> str:
    """The scores [batch, beam, 1, vocabulary] of the tokens after the texts [batch, beam, length]; NEVER for those that
    may not follow.

    The first `skipped` tokens of the texts of a sentence are not read; its texts have at most `limit`, both [batch].
    """

    def masked(scope: OnnxEmitter) -> tuple[str, ...]:
        state = _states_after(scope, texts, automaton, skipped)
        following = scope.op("Gather", automaton.next, scope.op("Max", state, 0), axis=0)
        following = scope.op("Cast", following, to=_INT64)
        needed = scope.op("Gather", automaton.needs, scope.op("Max", following, 0), axis=0)
        left = scope.op("Sub", limit, scope.op("Shape", texts, start=2))
        fits = scope.op("LessOrEqual", needed, scope.op("Unsqueeze", left, [1, 2]))
        known = scope.op("Unsqueeze", scope.op("GreaterOrEqual", state, 0), [2])
        allowed = scope.op("And", scope.op("And", scope.op("GreaterOrEqual", following, 0), fits), known)
        allowed = scope.op("Or", allowed, scope.op("Unsqueeze", scope.op("Less", automaton.start, 0), [1, 2]))
        return (scope.op("Where", scope.op("Unsqueeze", allowed, [2]), scores, NEVER),)

    (found,) = onnx.choose(automaton.used, masked, lambda _: (scores,), ("float32",))
    return found


def _states_after(onnx: OnnxEmitter, texts: str, automaton: Automaton, skipped: str) -> str:
    """The state after each text [batch, beam, length], but for its first tokens; -1 if it does not match."""

    def read(scope: OnnxEmitter, place: str, carried: list[str]) -> tuple[str, list[str], list[tuple[Type, str]]]:
        (state,) = carried
        known, token = scope.op("GreaterOrEqual", state, 0), scope.op("Gather", texts, place, axis=2)
        pair = [scope.op("Unsqueeze", name, [2]) for name in (scope.op("Max", state, 0), token)]
        following = scope.op("GatherND", automaton.next, scope.op("Concat", *pair, axis=2))
        following = scope.op("Where", known, scope.op("Cast", following, to=_INT64), state)
        reads = scope.op("GreaterOrEqual", place, scope.op("Unsqueeze", skipped, [1]))
        return scope.op("Identity", True), [scope.op("Where", reads, following, state)], []

    first = onnx.op("Expand", onnx.op("Unsqueeze", automaton.start, [1]), onnx.op("Shape", texts, end=2))
    length = onnx.op("Squeeze", onnx.op("Shape", texts, start=2))
    (found,) = onnx.loop(length, [(_STATES, first)], read)
    return found
