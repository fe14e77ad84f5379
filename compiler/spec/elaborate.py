"""From a spec to its graph: blocks are expanded, names looked up, and each primitive writes its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, GraphBuilder, Initial, Op, Parameter, Value
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.masks import PaddingMask
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.model import MAX_AXIS, Model
from xformc.compiler.spec.primitives import PRIMITIVES
from xformc.compiler.spec.problems import Problem, Span, SpecError, listed, suggest
from xformc.compiler.spec.sizes import evaluate, unknown_size
from xformc.compiler.spec.syntax import Block, Body, Call, Inline, Kind, Step
from xformc.compiler.spec.tree import Tree

PAD = 0
MAX_STEPS = 200_000
MAX_DEPTH = 64
MAX_PARAMETERS = 10**11


@dataclass(frozen=True)
class Quantity:
    """A number that a block was given, and the size that it is called after, if it is one."""

    value: Number
    name: str


@dataclass(frozen=True)
class Closure:
    """A body that a block was given, with the names that it may use."""

    body: Body
    scope: "Scope"


Bound = Closure | Value | bool | Quantity | str | Axis | tuple[Axis, ...]


@dataclass(frozen=True)
class Scope:
    """The names that a body may use. `blocks` are those it stands in, `user` the last step in a spec itself."""

    values: Mapping[str, Value]
    arguments: Mapping[str, Bound]
    blocks: tuple[str, ...]
    user: Span

    def at(self, span: Span) -> "Scope":
        """The scope inside the step at this place."""
        return self if span.source.library else replace(self, user=span)

    def problem(self, span: Span, message: str, hint: str | None = None) -> SpecError:
        """The error for a mistake at this place."""
        return SpecError([Problem(span, message, hint, self.user if span.source.library else None)])


@dataclass(frozen=True)
class Elaborated:
    """The graph, and which names of the spec it used."""

    graph: Graph
    sizes: frozenset[str]
    choices: frozenset[str]


def elaborate(name: str, task: str, model: Model) -> Elaborated:
    """The graph of a model, called `name`. Raises: SpecError."""
    return _Elaborator(name, task, model).run()


class _Elaborator:
    """Walks the stages in order and writes the graph."""

    def __init__(self, name: str, task: str, model: Model) -> None:
        self.model = model
        self.task = task
        self.builder = GraphBuilder(name)
        self.used_sizes = {tokens.vocabulary.name for tokens in model.inputs.values()}
        self.used_choices: set[str] = set()
        self.steps = 0
        self.depth = 0
        self.count = 0
        self.masks: dict[str, Value] = {}
        self.spans: dict[str, Span] = {}
        self.declared: dict[str, tuple[Type, Initial]] = {}
        self.tied = {path: (group[0][0], span) for group in model.ties for path, span in group}

    def run(self) -> Elaborated:
        values = {
            name: self.builder.input(name, Type("int64", (Axis("batch"), Axis(name)))) for name in self.model.inputs
        }
        result = None
        for name, stage in self.model.stages.items():
            scope = Scope(values, {}, (), stage.span)
            x = self.value(stage.source, scope) if stage.source else next(iter(values.values()))
            result = values[name] = self.inline(stage, scope, x, name)
        assert result is not None
        self.check_result(result)
        self.finish_ties()
        graph = self.builder.finish((result,))
        self.refuse_unused(graph)
        return Elaborated(graph, frozenset(self.used_sizes), frozenset(self.used_choices))

    # Steps: each takes the running value and gives the next one.

    def body(self, body: Body, scope: Scope, x: Value, path: str) -> Value:
        if self.depth >= MAX_DEPTH:
            raise scope.problem(body.span, f"blocks nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        scope = replace(scope, values={**scope.values, "x": x})
        for name, step in body.steps:
            x = self.step(step, scope, x, f"{path}/{step.level}" if step.level else path)
            if name is not None:
                scope = replace(scope, values={**scope.values, name: x})
        self.depth -= 1
        return x

    def step(self, step: Step, scope: Scope, x: Value, path: str) -> Value:
        self.steps += 1
        scope = scope.at(step.span)
        if self.steps > MAX_STEPS:
            raise scope.problem(step.span, f"the model has more than {MAX_STEPS:,} steps")
        if step.source is not None:
            x = self.value(step.source, scope)
        if isinstance(step, Inline):
            return self.inline(step, scope, x, path)
        assert isinstance(step, Call)
        given = scope.arguments.get(step.name)
        if isinstance(given, Closure):
            return self.body(given.body, given.scope, x, path)
        if step.name in self.model.blocks:
            return self.block(self.model.blocks[step.name], step, scope, x, path)
        return self.primitive(step, scope, x, path)

    def inline(self, step: Inline, scope: Scope, x: Value, path: str) -> Value:
        if step.repeat is None:
            return self.body(step.body, scope, x, path)
        times = self.number(step.repeat, scope)
        if times != int(times) or times < 0:
            raise scope.problem(step.repeat.span, f"repeat needs a whole number, found {_described(step.repeat, times)}")
        for index in range(int(times)):
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise scope.problem(step.repeat.span, f"the model has more than {MAX_STEPS:,} steps")
            x = self.body(step.body, scope, x, f"{path}/{index}")
        return x

    def block(self, block: Block, call: Call, scope: Scope, x: Value, path: str) -> Value:
        if block.name in scope.blocks:
            chain = " -> ".join((*scope.blocks[scope.blocks.index(block.name) :], block.name))
            raise scope.problem(call.span, f"a block contains itself: {chain}")
        inner = Scope({"x": x}, {}, (*scope.blocks, block.name), scope.user)
        bound: dict[str, Bound] = {}
        for name, parameter in block.signature.parameters.items():
            given = call.arguments.get(name)
            argument, owner = (block.defaults[name], inner) if given is None else (given, scope)
            bound[name] = self.bind(name, parameter.kind, argument, owner)
        inner = replace(inner, arguments=bound)
        return self.body(self.chosen(block, inner), inner, x, path)

    def chosen(self, block: Block, scope: Scope) -> Body:
        if block.choice is None:
            return block.bodies["do"]
        name = str(block.choice.value)
        given = scope.arguments.get(name)
        choice = self.model.choices.get(name)
        if isinstance(given, str):
            word, span = given, scope.user
        elif choice is None:
            hint = suggest(name, self.model.choices) or f"add '{name}: ' and one of {listed(block.bodies)} to choices"
            raise scope.problem(block.choice.span, f"no choice '{name}' is made", hint)
        else:
            word, span = str(choice.value), choice.span
            self.used_choices.add(name)
        if word not in block.bodies:
            message = f"{name} is {listed(block.bodies)}, found '{word}'"
            raise scope.problem(span, message, suggest(word, block.bodies))
        return block.bodies[word]

    def primitive(self, call: Call, scope: Scope, x: Value, path: str) -> Value:
        primitive = PRIMITIVES[call.name]
        site = _Site(self, call, scope, path)
        if not primitive.tokens and x.type.dtype != "float32":
            raise site.refuse(f"{call.name} is applied to vectors, found {x.name}: {x.type}", "embed the tokens first")
        arguments: dict[str, object] = {}
        for name, parameter in primitive.signature.parameters.items():
            if name in call.arguments:
                bound = self.bind(name, parameter.kind, call.arguments[name], scope)
                arguments[name] = _plain(bound, self, path)
        return primitive.apply(site, x, **arguments)

    # Arguments: what a kind makes of what is written.

    def bind(self, name: str, kind: Kind, argument: Tree | Body, scope: Scope) -> Bound:
        if isinstance(argument, Body):
            return Closure(argument, scope)
        match kind:
            case "value":
                return self.value(argument, scope)
            case "number":
                return self.quantity(name, argument, scope)
            case "axis":
                return self.axis(argument, scope)
            case "axes":
                return self.axes(argument, scope)
            case "flag":
                return self.flag(argument, scope)
            case _:
                return self.word(argument, scope)

    def value(self, tree: Tree, scope: Scope) -> Value:
        arguments = {name: bound for name, bound in scope.arguments.items() if isinstance(bound, Value)}
        known = {**arguments, **scope.values}
        if not isinstance(tree.value, str):
            raise scope.problem(tree.span, f"must be the name of a value, found {tree.described()}")
        if tree.value not in known:
            hint = suggest(tree.value, known) or f"known here are {', '.join(known)}"
            raise scope.problem(tree.span, f"unknown value '{tree.value[:40]}'", hint)
        return known[tree.value]

    def number(self, tree: Tree, scope: Scope) -> Number:
        def lookup(name: str, span: Span) -> Number:
            bound = scope.arguments.get(name)
            if isinstance(bound, Quantity):
                return bound.value
            if isinstance(bound, Axis):
                return bound.size or 0
            if name not in self.model.sizes:
                raise SpecError([replace(item, user=scope.user) for item in unknown_size(name, span, self.model.sizes).problems])
            self.used_sizes.add(name)
            return self.model.sizes[name]

        return evaluate(tree, lookup)

    def quantity(self, name: str, tree: Tree, scope: Scope) -> Quantity:
        value = self.number(tree, scope)
        bound = scope.arguments.get(str(tree.value))
        if isinstance(bound, Quantity | Axis):
            return Quantity(value, bound.name)
        return Quantity(value, str(tree.value) if tree.value in self.model.sizes else name)

    def axis(self, tree: Tree, scope: Scope) -> Axis:
        bound = scope.arguments.get(str(tree.value))
        if isinstance(bound, Axis):
            return bound
        value = self.number(tree, scope)
        if not isinstance(bound, Quantity) and tree.value not in self.model.sizes:
            raise scope.problem(tree.span, f"an axis needs a name, found {tree.described()}", "give it one under sizes")
        name = bound.name if isinstance(bound, Quantity) else str(tree.value)
        if value != int(value) or not 1 <= value <= MAX_AXIS:
            raise scope.problem(tree.span, f"the axis {name} needs a positive whole number, found {value:g}")
        return Axis(name, int(value))

    def axes(self, tree: Tree, scope: Scope) -> tuple[Axis, ...]:
        bound = scope.arguments.get(str(tree.value))
        if isinstance(bound, tuple):
            return bound
        axes = tuple(self.axis(item, scope) for item in (tree.items if isinstance(tree.value, tuple) else (tree,)))
        names = [axis.name for axis in axes]
        if not axes or len(set(names)) != len(names):
            raise scope.problem(tree.span, "must be one axis or several different ones")
        return axes

    def flag(self, tree: Tree, scope: Scope) -> bool:
        bound = scope.arguments.get(str(tree.value)) if isinstance(tree.value, str) else tree.value
        if not isinstance(bound, bool):
            raise scope.problem(tree.span, f"must be true or false, found {tree.described()}")
        return bound

    def word(self, tree: Tree, scope: Scope) -> str:
        if not isinstance(tree.value, str):
            raise scope.problem(tree.span, f"must be a word, found {tree.described()}")
        bound = scope.arguments.get(tree.value)
        return bound if isinstance(bound, str) else tree.value

    # The end: the result, ties, and what was written for nothing.

    def check_result(self, result: Value) -> None:
        axes = (Axis("batch"), Axis("target"), self.model.inputs["target"].vocabulary)
        if result.type != Type("float32", axes):
            name, stage = list(self.model.stages.items())[-1]
            message = f"the last stage of a {self.task} model is {Type('float32', axes)}, found {name}: {result.type}"
            raise SpecError([Problem(stage.span, message)])

    def finish_ties(self) -> None:
        problems: list[Problem] = []
        for group in self.model.ties:
            for path, span in group:
                if path not in self.declared:
                    problems.append(Problem(span, f"no parameter '{path[:100]}'", suggest(path, self.declared)))
            first = group[0][0]
            if first in self.declared and first in self.builder.parameters:
                known = self.builder.parameters[first]
                self.builder.parameters[first] = Parameter(known.value, self.declared[first][1])
        if problems:
            raise SpecError(problems)

    def refuse_unused(self, graph: Graph) -> None:
        used = {value.name for node in graph.nodes for value in node.inputs} | {graph.outputs[0].name}
        problems = [
            Problem(self.spans[node.outputs[0].name], "the result of this step is not used by anything")
            for node in graph.nodes
            if not any(value.name in used for value in node.outputs)
        ]
        problems += [
            Problem(self.model.inputs[value.name].span, f"the input '{value.name}' is not used by anything")
            for value in graph.inputs
            if value.name not in used
        ]
        if problems:
            raise SpecError(problems)


def _plain(bound: Bound, elaborator: _Elaborator, path: str) -> object:
    """What a primitive's function is given for an argument."""
    if isinstance(bound, Quantity):
        return bound.value
    if isinstance(bound, Closure):
        return lambda x: elaborator.body(bound.body, bound.scope, x, path)
    return bound


def _described(tree: Tree, value: Number) -> str:
    return f"{value:g}" if isinstance(tree.value, int | float) else f"{tree.value} = {value:g}"


@dataclass(frozen=True)
class _Site:
    """The `Site` of one use of a primitive."""

    elaborator: _Elaborator
    call: Call
    scope: Scope
    path: str

    def emit(self, op: Op, *inputs: Value, name: str = "") -> Value:
        builder = self.elaborator.builder
        try:
            value = builder.emit(op, inputs, f"{self.path}/{name}" if name else self.path, self.scope.user.place)
        except RuleError as error:
            raise self.scope.problem(self.call.span, error.message, error.hint) from None
        self.elaborator.spans[value.name] = self.scope.user
        return value

    def parameter(self, name: str, axes: tuple[Axis, ...], initial: Initial) -> Value:
        elaborator, path = self.elaborator, f"{self.path}/{name}"
        declared = Type("float32", axes)
        tied_name, span = elaborator.tied.get(path, (path, self.call.span))
        known = elaborator.builder.parameters.get(tied_name)
        if path in elaborator.declared or (known is None and tied_name in elaborator.builder.names):
            raise self.refuse(f"two parameters would be called '{path}'", "write the body as a mapping, so that each step has a name")
        if known is not None and known.type != declared:
            raise SpecError([Problem(span, f"{path} is {declared} and cannot be tied to {tied_name}, which is {known.type}")])
        parameter = Parameter(Value(path, declared), initial)
        elaborator.declared[path] = (declared, initial)
        elaborator.count += parameter.count if known is None else 0
        if elaborator.count > MAX_PARAMETERS:
            raise self.refuse(f"the model has more than {MAX_PARAMETERS:.0e} parameters")
        return elaborator.builder.parameter(tied_name, declared, initial)

    def positions(self, value: Value) -> str:
        found = [name for name in value.type.names if name in self.elaborator.model.inputs]
        if len(found) != 1:
            raise self.refuse(f"needs a value with one axis of positions, found {value.name}: {value.type}")
        return found[0]

    def mask(self, axis: str) -> Value:
        masks = self.elaborator.masks
        if axis not in masks:
            tokens = next(value for value in self.elaborator.builder.inputs if value.name == axis)
            name, builder = f"{axis}/mask", self.elaborator.builder
            masks[axis] = builder.emit(PaddingMask(PAD), (tokens,), name, self.scope.user.place)
        return masks[axis]

    def vocabulary(self, tokens: Value) -> Axis:
        found = self.elaborator.model.inputs.get(tokens.name)
        if found is None:
            raise self.refuse(f"needs an input of tokens, found {tokens.name}: {tokens.type}")
        return found.vocabulary

    def refuse(self, message: str, hint: str | None = None, argument: str | None = None) -> SpecError:
        given = self.call.arguments.get(argument or "")
        return self.scope.problem(given.span if given else self.call.span, message, hint)
