"""The order of a model's stages: each after the stages that it uses, and the result last."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.signature import Signature, is_name
from xformc.compiler.spec.syntax import Body, Call, Choose, Inline, Step
from xformc.compiler.spec.tree import Tree

MAX_CHAIN = 64


def in_order(
    stages: Mapping[str, Inline],
    signatures: Mapping[str, Signature],
    others: Set[str],
    inherited: Set[str],
    ends: Sequence[str | None],
    problems: list[Problem],
) -> dict[str, Inline]:
    """The stages as declared, but each after those that it uses.

    The last one that no other uses makes the result and is the last of all. `inherited` ones without a use are left
    out, since the file that inherits them cannot remove them. `others`: inputs and sizes, which steps may use too.
    """
    uses = {name: dict.fromkeys(_names(stage, signatures, {"x"})) for name, stage in stages.items()}
    needs = {name: [other for other in names if other in stages] for name, names in uses.items()}
    used = {name for names in needs.values() for name in names}
    last = [name for name in stages if name not in used][-1:]
    results = [name for end in ends for name in (last if end is None else [end]) if name in stages]
    order: dict[str, Inline] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            problems.append(Problem(stages[name].span, f"stages use each other: {circle}"))
        elif len(path) > MAX_CHAIN:
            message = f"more than {MAX_CHAIN} stages use each the next"
            problems.append(Problem(stages[name].span, message, "write a stage after those that it uses"))
        elif name not in order:
            for other in needs[name]:
                place(other, (*path, name))
            order[name] = stages[name]

    known = {*stages, *others}
    misspelled = any(is_name(other) and other not in known for names in uses.values() for other in names)
    left_out = frozenset[str]() if misspelled else inherited - _reached(results, needs)
    for name in (*(name for name in stages if name not in left_out and name not in results), *results):
        place(name, ())
    return order


def _reached(names: Iterable[str], needs: Mapping[str, Sequence[str]]) -> Set[str]:
    """The stages, and all that they use."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(needs[name])
    return found


def _names(step: Step, signatures: Mapping[str, Signature], own: Set[str]) -> Iterator[str]:
    """The names of values that a step uses and that are not its body's `own`."""
    if step.source is not None:
        yield from _name(step.source, own)
    if isinstance(step, Inline):
        if step.repeat is not None:
            for first in step.repeat.carry.values():
                yield from _name(first, own)
            own = {*own, *step.repeat.carry, step.repeat.index or "x"}
        yield from _in_body(step.body, signatures, own)
    if isinstance(step, Choose):
        for body in step.bodies.values():
            yield from _in_body(body, signatures, own)
    if isinstance(step, Call):
        yield from _in_call(step, signatures, own)


def _in_call(call: Call, signatures: Mapping[str, Signature], own: Set[str]) -> Iterator[str]:
    taken = signatures.get(call.name, Signature({})).parameters
    states = _states(call)
    for key, argument in call.arguments.items():
        if isinstance(argument, Body):
            yield from _in_body(argument, signatures, own | states)
        elif key in taken and taken[key].kind in ("value", "operand"):
            yield from _name(argument, own)


def _states(call: Call) -> Set[str]:
    """The names of states in its arguments, which its bodies may use."""
    return {name for item in call.arguments.values() if isinstance(item, Tree) for name in item.entries}


def _in_body(body: Body, signatures: Mapping[str, Signature], own: Set[str]) -> Iterator[str]:
    known = {*own}
    for name, step in body.steps:
        yield from _names(step, signatures, known)
        known.update(() if name is None else (name,))


def _name(tree: Tree, own: Set[str]) -> Iterator[str]:
    name = tree.word.partition("/")[0]
    if name not in own:
        yield name
