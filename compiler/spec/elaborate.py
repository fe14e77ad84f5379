"""Elaborates a spec into its graph: expands blocks, looks up names, and lets each primitive write its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from xformc.compiler.graph.graph import Graph, Op, Value
from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.results.kind import KINDS, Declared
from xformc.compiler.spec.frames import Frame, FrameLog
from xformc.compiler.spec.load import shipped_blocks
from xformc.compiler.spec.model import Model
from xformc.compiler.spec.problems import Span, SpecError, listed
from xformc.compiler.spec.scope import Binder, Bound, Closure, Numbers, Quantity, Scope
from xformc.compiler.spec.signature import is_name
from xformc.compiler.spec.syntax import OTHERWISE, Block, Body, Call, Choose, Inline, Repeat, Step
from xformc.compiler.spec.tasks import unfit
from xformc.compiler.spec.tree import Tree
from xformc.compiler.spec.writer import Site, Writer
from xformc.errors import suggest

MAX_STEPS = 100_000
MAX_DEPTH = 64
APPLIED = {"float32": "vectors", "int64": "tokens", "bool": "conditions"}
"""The values that a primitive on this dtype applies to."""
LEADING = {
    ("float32", "int64"): "embed the tokens first",
    ("float32", "bool"): "`where` with two numbers makes numbers of a condition",
    ("bool", "float32"): "compare two values first",
    ("bool", "int64"): "compare two values first",
}
"""What leads to values of the first dtype from those of the second."""
NOT_WORDS = (OTHERWISE, "doc", "takes", "choose")


@dataclass(frozen=True)
class Elaborated:
    """The graph, all paths of each parameter, the sizes, choices and default arguments in use, the log of its steps."""

    graph: Graph
    paths: Mapping[str, tuple[str, ...]]
    sizes: frozenset[str]
    choices: frozenset[str]
    defaults: frozenset[tuple[str, str]]
    log: FrameLog = field(repr=False, compare=False)

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """The frame of each stage, in order."""
        return self.log.frames()


def elaborate(name: str, task: str, model: Model) -> Elaborated:
    """The graph of a model, named `name`. Raises: SpecError."""
    return Elaborator(name, model).run(task)


class Elaborator:
    """Walks the stages in order; each method takes the running value and returns the next one."""

    def __init__(self, name: str, model: Model) -> None:
        self.model = model
        self.log = FrameLog()
        self.writer = Writer(name, model, self.log.made)
        used = {axis.name for item in model.inputs.values() for axis in item.axes}
        self.binder = Binder(model.sizes, model.declared, used)
        self.choices: set[str] = set()
        self.defaults: set[tuple[str, str]] = set()
        self.steps = 0
        self.depth = 0

    def run(self, task: str) -> Elaborated:
        """Elaborate all stages in order."""
        values = {name: self.writer.input(name) for name in self.model.inputs}
        turns: dict[str, list[Mapping[str, Value]]] = {}
        for name, stage in self.model.stages.items():
            scope = Scope(values, {}, (), stage.span, turns)
            assert stage.source is not None
            x = self.binder.value(stage.source, scope)
            turns[name] = []
            self.log.enter("stage", name, name, x)
            values[name] = self.log.leave(self.inline(stage, scope, x, name, turns[name]))
            self.writer.end_stage(name, stage.span, values[name])
        graph = self.writer.finish([self.result(task, result, values) for result in self.model.results])
        used = (frozenset(self.binder.used), frozenset(self.choices), frozenset(self.defaults))
        return Elaborated(graph, self.writer.paths(), *used, self.log)

    def result(self, task: str, result: Declared, values: Mapping[str, Value]) -> Value:
        """The value of a result, if its stage returns what the task or the kind needs. Raises: SpecError otherwise."""
        name = result.stage or list(self.model.stages)[-1]
        value, span = values[name], self.model.stages[name].span
        wanted = unfit(task, result, value.type, self.model.inputs)
        if wanted is not None:
            what = f"the last stage of a {task} model" if result.stage is None else f"the stage of {result.kind}"
            raise SpecError.at(span, f"{what} must return {wanted}, found {value.type}")

        def emit(op: Op, inputs: tuple[Value, ...]) -> Value:
            return self.writer.complete(op, inputs, f"{result.name}/{op.kind}", span)

        return KINDS[result.kind].complete(value, lambda: self.writer.mask(value.type.names[1], span), emit)

    def body(self, body: Body, scope: Scope, x: Value, path: str) -> Value:
        """The result of a body applied to `x`."""
        return self.named_body(body, scope, x, path)[0]

    def named_body(self, body: Body, scope: Scope, x: Value, path: str) -> tuple[Value, Scope]:
        """The result of a body, and the scope at its end."""
        if self.depth >= MAX_DEPTH:
            raise scope.problem(body.span, f"blocks nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        scope = replace(scope, values={**scope.values, "x": x})
        for name, step in body.steps:
            turns: list[Mapping[str, Value]] = []
            if name is not None and isinstance(step, Inline) and step.repeat is not None:
                scope = replace(scope, turns={**scope.turns, name: turns})
            x = self.step(step, scope, x, f"{path}/{step.level}" if step.level else path, turns)
            if name is not None:
                scope = replace(scope, values={**scope.values, name: x})
        self.depth -= 1
        return x, scope

    def step(
        self, step: Step, scope: Scope, x: Value, path: str, turns: list[Mapping[str, Value]] | None = None
    ) -> Value:
        """The result of one step; a repetition appends the values of each of its turns to `turns`."""
        scope = scope.at(step.span)
        self.count(step.span, scope)
        if step.source is not None:
            x = self.binder.value(step.source, scope)
        if isinstance(step, Inline):
            return self.inline(step, scope, x, path, [] if turns is None else turns)
        if isinstance(step, Choose):
            return self.body(self.chosen(step.choice, step.bodies, scope), scope, x, path)
        assert isinstance(step, Call)
        given = scope.arguments.get(step.name)
        if isinstance(given, Closure):
            return self.apply(given, path, x)
        known = self.model.defaults.get(step.name, {})
        self.defaults.update((step.name, key) for key, tree in known.items() if step.arguments.get(key) is tree)
        block = self.model.blocks.get(step.name)
        if block is not None:
            self.log.enter("block", step, path, x)
            return self.log.leave(self.block(block, step, scope, x, path))
        self.log.enter("primitive", step, path, x)
        return self.log.leave(self.primitive(step, scope, x, path))

    def inline(self, step: Inline, scope: Scope, x: Value, path: str, turns: list[Mapping[str, Value]]) -> Value:
        """The result of `do`, repeated if `repeat` is set."""
        if step.repeat is None:
            return self.body(step.body, scope, x, path)
        repeat, names = step.repeat, [name for name, _ in step.body.steps if name is not None]
        carried = {name: self.binder.value(first, scope) for name, first in repeat.carry.items()}
        self.log.enter("repeat", "", path, x)
        results: list[Value] = []
        for index in range(self.times(repeat, scope)):
            self.count(repeat.times.span, scope)
            turn = f"{path}/{index}"
            if repeat.shared:
                self.writer.share(turn)
            self.log.enter("iteration", "", turn, x)
            inner = replace(scope, values={**scope.values, **carried}, arguments=self.counted(repeat, index, scope))
            x, after = self.named_body(step.body, inner, x, turn)
            self.log.leave(x)
            carried = {name: after.values[name] for name in carried}
            turns.append({name: after.values[name] for name in names})
            results.append(x)
        self.writer.end_repeat((*carried.values(), *(results[:-1] if carried else ())))
        return self.log.leave(x)

    def times(self, repeat: Repeat, scope: Scope) -> int:
        """How often a body is repeated."""
        times = self.binder.number(repeat.times, scope)
        if times != int(times) or times < 0:
            raise self.binder.unfit(repeat.times, scope, times, "repeat needs a whole number")
        return int(times)

    def counted(self, repeat: Repeat, index: int, scope: Scope) -> Mapping[str, Bound]:
        """The arguments in scope in a turn, with its index."""
        if repeat.index is None:
            return scope.arguments
        if repeat.index in self.model.sizes:
            raise scope.problem(repeat.times.span, f"the index '{repeat.index}' is already a size", "rename it")
        return {**scope.arguments, repeat.index: Quantity(index, repeat.index, Tree(repeat.index, repeat.times.span))}

    def block(self, block: Block, call: Call, scope: Scope, x: Value, path: str) -> Value:
        """The result of a block with its arguments bound."""
        if block.name in scope.blocks:
            chain = " -> ".join((*scope.blocks[scope.blocks.index(block.name) :], block.name))
            raise scope.problem(call.span, f"a block contains itself: {chain}")
        others = block.span.source.shipped or block.span.source.library
        caller = scope.caller if others else scope.user
        inner = Scope({"x": x}, {}, (*scope.blocks, block.name), scope.user, caller=caller)
        bound: dict[str, Bound] = {}
        for name, parameter in block.signature.parameters.items():
            given = call.arguments.get(name)
            argument, owner = (block.defaults[name], inner) if given is None else (given, scope)
            bound[name] = self.binder.bind(name, parameter.kind, argument, owner)
        inner = replace(inner, arguments=bound)
        body = block.bodies["do"] if block.choice is None else self.chosen(block.choice, block.bodies, inner)
        return self.body(body, inner, x, path)

    def chosen(self, choice: Tree, bodies: Mapping[str, Body], scope: Scope) -> Body:
        """The body that a choice picks."""
        name = choice.word
        given, said = scope.arguments.get(name), self.model.choices.get(name)
        if isinstance(given, Quantity) or not is_name(name) or (said is None and name in self.model.sizes):
            return self.numbered(choice, bodies, scope)
        if isinstance(given, str):
            word, span = given, scope.user
        elif said is None and OTHERWISE in bodies:
            return bodies[OTHERWISE]
        elif said is None:
            hint = suggest(name, self.model.choices) or f"set '{name}' under choices to {listed(bodies)}"
            raise scope.problem(choice.span, f"the choice '{name}' is not set", hint)
        else:
            word, span = str(said.value), said.span
        known = {*self.words(name), OTHERWISE} if OTHERWISE in bodies else set(bodies)
        if word not in known:
            message = f"{name} must be {listed(sorted(known))}, found '{word}'"
            raise scope.problem(span, message, suggest(word, known))
        if word not in bodies:
            return bodies[OTHERWISE]
        self.choices.add(name)
        return bodies[word]

    def numbered(self, choice: Tree, bodies: Mapping[str, Body], scope: Scope) -> Body:
        """The body for the number that a choice by arithmetic has."""
        value = self.binder.number(choice, scope)
        word = str(int(value)) if value == int(value) else str(value)
        body = bodies.get(word, bodies.get(OTHERWISE))
        if body is None:
            message = f"'{choice.word}' is {word}, and no body is for {word}"
            raise scope.problem(choice.span, message, f"write a body for {word}, or one for {OTHERWISE}")
        return body

    def words(self, name: str) -> set[str]:
        """The words that a choice accepts: those of all blocks and steps that choose by it."""
        trees = [entry.tree for entry in shipped_blocks().values()]
        words = {word for tree in trees if (tree.get("choose") or tree).word == name for word in tree.entries}
        return words.union(self.model.words.get(name, ())).difference(NOT_WORDS)

    def primitive(self, call: Call, scope: Scope, x: Value, path: str) -> Value:
        """The result of the nodes that a primitive writes."""
        primitive = PRIMITIVES[call.name]
        site = Site(self.writer, self.binder, call, scope, path)
        bound = {
            name: self.binder.bind(name, primitive.takes[name].kind, written, scope)
            for name, written in call.arguments.items()
        }
        if primitive.on is not None and x.type.dtype != primitive.on:
            message = f"{call.name} needs {APPLIED[primitive.on]}, found {x.name}: {x.type}"
            raise site.refuse(message, LEADING.get((primitive.on, x.type.dtype)))
        arguments = {name: self.plain(item, path) for name, item in bound.items()}
        return primitive.apply(site, x, **arguments)

    def plain(self, bound: Bound, path: str) -> object:
        """The argument as a primitive's function takes it."""
        if isinstance(bound, Closure):
            return _Applied(self, bound, path)
        if isinstance(bound, Numbers):
            return bound.values
        return bound.value if isinstance(bound, Quantity) else bound

    def apply(self, closure: Closure, path: str, x: Value) -> Value:
        """The result of a block passed as an argument."""
        return self.body(closure.body, closure.scope, x, path)

    def apply_named(
        self, closure: Closure, path: str, x: Value, names: Mapping[str, Value]
    ) -> tuple[Value, Mapping[str, Value]]:
        """The result of such a block with additional names in scope, and the values of all names at its end."""
        body = closure.body
        if len(body.steps) == 1 and isinstance(inline := body.steps[0][1], Inline) and inline.plain:
            body = inline.body
        scope = replace(closure.scope, values={**closure.scope.values, **names})
        result, after = self.named_body(body, scope, x, path)
        return result, after.values

    def count(self, span: Span, scope: Scope) -> None:
        """Count a step. Raises: SpecError above the limit."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise scope.problem(span, f"the model has more than {MAX_STEPS:,} steps")


@dataclass(frozen=True)
class _Applied:
    """A body passed to a primitive: see graph.primitives.Applied."""

    elaborator: Elaborator
    closure: Closure
    path: str

    def __call__(self, x: Value) -> Value:
        return self.elaborator.apply(self.closure, self.path, x)

    def named(self, x: Value, names: Mapping[str, Value]) -> tuple[Value, Mapping[str, Value]]:
        return self.elaborator.apply_named(self.closure, self.path, x, names)
