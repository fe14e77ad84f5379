"""The initial values of parameters: as an argument of a step, and by path in the section `initial` of a spec."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Parameter
from xformc.compiler.graph.initialization import ALONE, KINDS, Initialization
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.paths import Paths, fits, hint, is_whole
from xformc.compiler.spec.problems import Problem, Span, SpecError, listed, raise_problems
from xformc.compiler.spec.sizes import evaluate, unknown_size
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest

DEFAULT = "default"
"""The key for parameters that no pattern matches."""


def read_initialization(tree: Tree, number: Callable[[Tree], Number]) -> Initialization:
    """A number, a word, or one kind with its number, such as `{normal: 0.02}`. Raises: SpecError."""
    if tree.word in ALONE:
        kind, value = ALONE[tree.word]
        return Initialization(kind, value)
    if len(tree.entries) == 1:
        ((kind, entry),) = tree.entries.items()
        for known in KINDS:
            if known == kind:
                return Initialization(known, float(number(entry.tree)))
        raise SpecError.at(entry.key, f"'{kind[:40]}' is not a kind of initial values", _hint(kind))
    if tree.word.isidentifier():
        needed = f"{tree.word} needs a number" if tree.word in KINDS else f"unknown initial values '{tree.word[:40]}'"
        raise SpecError.at(tree.span, needed, _hint(tree.word))
    if isinstance(tree.value, bool) or not isinstance(tree.value, int | float | str):
        raise SpecError.at(tree.span, f"must be initial values, found {tree.described()}", _hint(""))
    return Initialization("constant", float(number(tree)))


def _hint(word: str) -> str:
    if word in KINDS:
        return f"write {{{word}: 0.02}}"
    return suggest(word, (*ALONE, *KINDS)) or f"a number, {listed(ALONE)}, or one of {listed(KINDS)} with its number"


def read_section(
    tree: Tree, sizes: Mapping[str, Number], problems: list[Problem]
) -> tuple[Mapping[str, Initialization], frozenset[str]]:
    """The initial values by pattern, and the sizes that they use; mistakes are appended to `problems`."""
    used: set[str] = set()

    def lookup(name: str, span: Span) -> Number:
        if name not in sizes:
            raise SpecError.at(span, *unknown_size(name, sizes))
        used.add(name)
        return sizes[name]

    found: dict[str, Initialization] = {}
    for pattern, entry in entries(tree).items():
        try:
            found[pattern] = read_initialization(entry.tree, lambda number: evaluate(number, lookup))
        except SpecError as error:
            problems.extend(error.problems)
    return found, frozenset(used)


def initialized(graph: Graph, patterns: Mapping[str, Initialization], tree: Tree, paths: Paths) -> Graph:
    """The graph whose parameters start as the last matching pattern says. Raises: SpecError for a misfit."""
    if not patterns:
        return graph
    matched = [(parameter, _last(patterns, parameter, paths)) for parameter in graph.parameters]
    problems, parameters = list[Problem](), list[Parameter]()
    for parameter, pattern in matched:
        try:
            same = pattern is None
            initial = parameter.initial if same else patterns[pattern].of(parameter.type.axes, parameter.outputs)
            parameters.append(replace(parameter, initial=initial))
        except RuleError as error:
            assert pattern is not None
            span = entries(tree)[pattern].tree.span
            problems.append(Problem(span, f"{parameter.name}: {error.message}", error.hint))
    raise_problems(problems + _idle(patterns, tree, graph, paths))
    return replace(graph, parameters=tuple(parameters))


def _last(patterns: Mapping[str, Initialization], parameter: Parameter, paths: Paths) -> str | None:
    """The last pattern that matches, or the default."""
    found = DEFAULT if DEFAULT in patterns and _drawn(parameter) else None
    for pattern in patterns:
        if pattern != DEFAULT and _matches(pattern, parameter, paths):
            found = pattern
    return found


def _matches(pattern: str, parameter: Parameter, paths: Paths) -> bool:
    """A whole path matches any trained parameter; a beginning of it only one that is random without the section."""
    matches = fits if _drawn(parameter) else is_whole
    return parameter.trained and any(matches(pattern, path) for path in paths[parameter.name])


def _drawn(parameter: Parameter) -> bool:
    return parameter.trained and parameter.initial.random


def _idle(patterns: Mapping[str, Initialization], tree: Tree, graph: Graph, paths: Paths) -> list[Problem]:
    """Report the file's own patterns that match no parameter."""
    known = [path for parameter in graph.parameters for path in paths[parameter.name]]
    return [
        Problem(entry.key, f"'{pattern[:100]}' matches no parameter", hint(pattern, known, "parameters"))
        for pattern, entry in entries(tree).items()
        if pattern in patterns
        and pattern != DEFAULT
        and is_own(entry, tree)
        and not any(_matches(pattern, parameter, paths) for parameter in graph.parameters)
    ]


def entries(tree: Tree) -> dict[str, Entry]:
    """The entries of the section."""
    section = tree.get("initial")
    return {} if section is None else section.entries
