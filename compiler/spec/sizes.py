"""The numbers of a spec: literals and arithmetic on named sizes, among them the sizes themselves."""

from collections.abc import Callable, Iterable

from xformc.compiler.spec.expressions import ExpressionError, Number, Term, parse_expression
from xformc.compiler.spec.problems import Problem, Span, SpecError
from xformc.compiler.spec.tree import Tree
from xformc.errors import suggest

MAX_CHAIN = 64


def evaluate(tree: Tree, lookup: Callable[[str, Span], Number]) -> Number:
    """The number that a tree holds; `lookup` returns the value of a name. Raises: SpecError."""
    try:
        return parse_number(tree).value(lambda name, part: lookup(name, _part(tree, part.start, part.end)))
    except ExpressionError as error:
        raise _problem(error, tree) from None


def parse_number(tree: Tree) -> Term:
    """Parse a number or a text as an expression. Raises: SpecError."""
    if isinstance(tree.value, bool) or not isinstance(tree.value, int | float | str):
        raise SpecError.at(tree.span, f"must be a number or arithmetic on sizes, found {tree.described()}")
    if not isinstance(tree.value, str):
        return Term(tree.value, (), 0, 0)
    try:
        return parse_expression(tree.value)
    except ExpressionError as error:
        raise _problem(error, tree) from None


def evaluate_sizes(tree: Tree | None) -> dict[str, Number]:
    """The value of every size under `sizes`. Raises: SpecError that lists every size without a value."""
    sizes = _Sizes({} if tree is None else {name: entry.tree for name, entry in tree.entries.items()})
    problems: list[Problem] = []
    for name in sizes.trees:
        try:
            sizes.value(name, ())
        except _KnownError:
            continue
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(problems)
    return sizes.values


def with_dependencies(tree: Tree | None, names: Iterable[str]) -> set[str]:
    """The names, and the names of all sizes that they depend on."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        size = None if tree is None else tree.get(name)
        if size is not None and name not in found:
            found.add(name)
            todo.extend(parse_number(size).names())
    return found


def unknown_size(name: str, known: Iterable[str]) -> tuple[str, str]:
    """The message and the hint for an unknown size."""
    return f"unknown size '{name[:40]}'", suggest(name, known) or f"add '{name[:40]}' to sizes"


class _KnownError(Exception):
    """A size that another one needs has no value; the error is reported at that size."""


class _Sizes:
    """Sizes, evaluated on demand; a size that failed once is not reported again."""

    def __init__(self, trees: dict[str, Tree]) -> None:
        self.trees = trees
        self.values: dict[str, Number] = {}
        self.failed: set[str] = set()

    def value(self, name: str, path: tuple[str, ...]) -> Number:
        if name in self.values:
            return self.values[name]
        if name in self.failed:
            raise _KnownError

        def lookup(other: str, span: Span) -> Number:
            inner = (*path, name)
            if other not in self.trees:
                raise SpecError.at(span, *unknown_size(other, self.trees))
            if other in inner:
                cycle = " -> ".join((*inner[inner.index(other) :], other))
                raise SpecError.at(span, f"a size depends on itself: {cycle}")
            if len(inner) >= MAX_CHAIN:
                raise SpecError.at(span, f"sizes depend on each other more than {MAX_CHAIN} levels deep")
            return self.value(other, inner)

        self.failed.add(name)
        self.values[name] = evaluate(self.trees[name], lookup)
        self.failed.discard(name)
        return self.values[name]


def _problem(error: ExpressionError, tree: Tree) -> SpecError:
    return SpecError.at(_part(tree, error.start, error.end), error.message)


def _part(tree: Tree, start: int, end: int) -> Span:
    """The span of part of a text that is unquoted and on one line; otherwise the span of the whole text."""
    return tree.span.part(start, end) if tree.span.text == tree.value and end > start else tree.span
