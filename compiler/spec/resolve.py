"""Turns the tree of a spec into its model: evaluates sizes, parses bodies into steps, looks up names."""

from collections.abc import Iterable

from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec.default_arguments import read_defaults
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.inputs import read_inputs
from xformc.compiler.spec.load import is_own, shipped_blocks
from xformc.compiler.spec.model import Model
from xformc.compiler.spec.problems import Problem, SpecError
from xformc.compiler.spec.results import read_results
from xformc.compiler.spec.signature import signature_of, signature_of_primitive
from xformc.compiler.spec.sizes import evaluate_sizes
from xformc.compiler.spec.stage_order import in_order
from xformc.compiler.spec.syntax import Block, Inline, Parser
from xformc.compiler.spec.tasks import task_problems
from xformc.compiler.spec.ties import read_ties
from xformc.compiler.spec.tree import Entry, Tree

RESERVED = ("batch", "x", "past", "seen", "beam", "room", "step")
"""Names of axes and values that every model has or the compiler adds."""


def read_model(tree: Tree, problems: list[Problem]) -> Model:
    """The model of a spec's tree; mistakes are appended to `problems`."""
    sizes = _sizes(tree, problems)
    parser = _parser(tree, problems)
    blocks, stages = _bodies(tree, parser)
    inputs = read_inputs(tree, sizes, problems)
    _check_names(tree, problems)
    results = read_results(tree, inputs, problems)
    problems.extend(task_problems(tree, inputs, results))
    declared, choices = (
        {name: entry.tree for name, entry in _section(tree, section).items()} for section in ("sizes", "choices")
    )
    ties = read_ties(tree.get("tie"), problems)
    inherited = {name for name, entry in _section(tree, "model").items() if not is_own(entry, tree)}
    ends = [result.stage for result in results]
    stages = in_order(stages, parser.signatures, {*inputs, *sizes}, inherited, ends, problems)
    words, defaults, left_out = parser.words, parser.defaults, inherited - stages.keys()
    return Model(sizes, declared, choices, inputs, results, blocks, stages, ties, words, defaults, left_out)


def reachable_blocks(tree: Tree, stages: Iterable[str] | None = None) -> dict[str, Entry]:
    """The blocks, own and shipped, that the stages refer to in any branch, directly or through other blocks."""
    known = {**shipped_blocks(), **_section(tree, "blocks")}
    model = _section(tree, "model")
    found: dict[str, Entry] = {}
    todo = [model[name].tree for name in (model if stages is None else stages)]
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


def _parser(tree: Tree, problems: list[Problem]) -> Parser:
    for name, entry in _section(tree, "blocks").items():
        if name in PRIMITIVES:
            problems.append(Problem(entry.key, f"'{name}' is a primitive and cannot be defined again"))
    signatures = {name: signature_of_primitive(primitive) for name, primitive in PRIMITIVES.items()}
    signatures |= {name: signature_of(entry.tree, problems) for name, entry in _blocks(tree).items()}
    return Parser(signatures, problems, frozenset(shipped_blocks()), read_defaults(tree, signatures, problems))


def _blocks(tree: Tree) -> dict[str, Entry]:
    """The blocks that the model may use, and all of the file's own."""
    own = {name: entry for name, entry in _section(tree, "blocks").items() if is_own(entry, tree)}
    blocks = {**reachable_blocks(tree), **own}
    return {name: entry for name, entry in blocks.items() if name not in PRIMITIVES}


def _bodies(tree: Tree, parser: Parser) -> tuple[dict[str, Block], dict[str, Inline]]:
    blocks = {name: parser.block(name, entry.tree, parser.signatures[name]) for name, entry in _blocks(tree).items()}
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
