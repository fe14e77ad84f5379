"""Turns the tree of a spec into its model: evaluates sizes, parses bodies into steps, looks up names."""

from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.inputs import read_inputs
from xformc.compiler.spec.load import shipped_blocks
from xformc.compiler.spec.model import Model, Ties
from xformc.compiler.spec.problems import Problem, SpecError
from xformc.compiler.spec.results import read_results
from xformc.compiler.spec.signature import signature_of, signature_of_primitive
from xformc.compiler.spec.sizes import evaluate_sizes
from xformc.compiler.spec.syntax import Block, Inline, Parser
from xformc.compiler.spec.tasks import task_problems
from xformc.compiler.spec.tree import Entry, Tree

RESERVED = ("batch", "x", "past", "seen", "beam", "room", "step")
"""Names of axes and values that every model has or the compiler adds."""


def read_model(tree: Tree, problems: list[Problem]) -> Model:
    """The model of a spec's tree; mistakes are appended to `problems`."""
    sizes = _sizes(tree, problems)
    blocks, stages = _bodies(tree, problems)
    inputs = read_inputs(tree, sizes, problems)
    _check_names(tree, problems)
    results = read_results(tree, inputs, problems)
    problems.extend(task_problems(tree, inputs, results))
    declared, choices = (
        {name: entry.tree for name, entry in _section(tree, section).items()} for section in ("sizes", "choices")
    )
    return Model(sizes, declared, choices, inputs, results, blocks, stages, _ties(tree, problems))


def reachable_blocks(tree: Tree) -> dict[str, Entry]:
    """The blocks, own and shipped, that the model refers to in any branch, directly or through other blocks."""
    known = {**shipped_blocks(), **_section(tree, "blocks")}
    model = tree.get("model")
    found: dict[str, Entry] = {}
    todo = [] if model is None else [model]
    while todo:
        for word in todo.pop().words():
            if word in known and word not in found:
                found[word] = known[word]
                todo.append(known[word].tree)
    return {name: found[name] for name in known if name in found}


def _section(tree: Tree, name: str) -> dict[str, Entry]:
    section = tree.get(name)
    return {} if section is None else section.entries


def _sizes(tree: Tree, problems: list[Problem]) -> dict[str, Number]:
    try:
        return evaluate_sizes(tree.get("sizes"))
    except SpecError as error:
        problems.extend(error.problems)
        return {}


def _bodies(tree: Tree, problems: list[Problem]) -> tuple[dict[str, Block], dict[str, Inline]]:
    own = _section(tree, "blocks")
    for name, entry in own.items():
        if name in PRIMITIVES:
            problems.append(Problem(entry.key, f"'{name}' is a primitive and cannot be defined again"))
    trees = {name: entry for name, entry in {**reachable_blocks(tree), **own}.items() if name not in PRIMITIVES}
    signatures = {name: signature_of_primitive(primitive) for name, primitive in PRIMITIVES.items()}
    signatures |= {name: signature_of(entry.tree, problems) for name, entry in trees.items()}
    parser = Parser(signatures, problems, frozenset(shipped_blocks()))
    blocks = {name: parser.block(name, entry.tree, signatures[name]) for name, entry in trees.items()}
    stages = {name: parser.stage(entry.tree) for name, entry in _section(tree, "model").items()}
    return blocks, stages


def _check_names(tree: Tree, problems: list[Problem]) -> None:
    taken = {name: "is reserved" for name in RESERVED}
    for section, kind in (("inputs", "input"), ("model", "stage"), ("sizes", "size")):
        for name, entry in _section(tree, section).items():
            if name in taken:
                problems.append(Problem(entry.key, f"the name '{name}' {taken[name]}", "choose another name"))
            else:
                taken[name] = f"is already taken by {'an' if kind == 'input' else 'a'} {kind}"


def _ties(tree: Tree, problems: list[Problem]) -> Ties:
    section = tree.get("tie")
    groups = [] if section is None else [group.items for group in section.items]
    seen: set[str] = set()
    for item in (item for group in groups for item in group):
        if str(item.value) in seen:
            problems.append(Problem(item.span, f"'{item.value}' is tied twice", "merge the two groups"))
        seen.add(str(item.value))
    return tuple(tuple((str(item.value), item.span) for item in group) for group in groups)
