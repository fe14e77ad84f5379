"""What the parts of a spec must agree on, and what is declared in vain."""

from collections.abc import Iterator, Mapping

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.positions import Positions
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.model import Input, Model
from xformc.compiler.spec.problems import Problem, suggest
from xformc.compiler.spec.resolve import reachable_blocks
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.tree import Entry, Tree


def unused(tree: Tree, kind: str, section: str, used: frozenset[str]) -> list[Problem]:
    """What the file itself, not one that it extends, declares under `section` although nothing uses it."""
    found = tree.get(section)
    entries = {} if found is None else found.entries
    return [
        Problem(
            entry.key, f"the {kind} '{name}' is not used by anything", suggest(name, used) or _elsewhere(tree, name)
        )
        for name, entry in entries.items()
        if name not in used and is_own(entry, tree)
    ]


def is_own(entry: Entry, tree: Tree) -> bool:
    """Whether the file itself has the entry, or a setting over it, and not a spec that it extends."""
    return entry.key.source.setting or entry.key.source == tree.span.source


def unused_blocks(tree: Tree) -> list[Problem]:
    """The file's own blocks that neither the model nor another block names."""
    return unused(tree, "block", "blocks", frozenset(reachable_blocks(tree)))


def shared_vocabulary(tree: Tree, train: Train, inputs: Mapping[str, Input]) -> list[Problem]:
    """A shared tokenizer has one size."""
    axes = [axis for item in inputs.values() for axis in item.axes]
    if not _all_text(inputs) or not train.tokenizer.shared or len({axis.size for axis in axes}) == 1:
        return []
    span = (tree.get("train", "tokenizer", "shared") or tree).span
    found = ", ".join(map(str, axes))
    return [Problem(span, f"a shared tokenizer has one vocabulary, found {found}", "say 'shared: false'")]


def word_pieces(tree: Tree, task: str, train: Train, inputs: Mapping[str, Input]) -> list[Problem]:
    """A label for each word needs a piece for each word."""
    if task != "tagging" or not _all_text(inputs) or train.tokenizer.kind == "word":
        return []
    place = tree.get("train", "tokenizer", "kind") or tree.get("train", "tokenizer") or tree.get("task") or tree
    message = f"tagging labels words, so a piece is a word: train.tokenizer.kind is {train.tokenizer.kind}"
    return [Problem(place.span, message, "write train: {tokenizer: {kind: word}}")]


def wide_beam(tree: Tree, task: str, decode: Decode, inputs: Mapping[str, Input]) -> list[Problem]:
    """A search of width W looks at the 2 W best tokens, so there must be so many."""
    most = inputs["target"].vocabulary // 2 if task == "translation" else decode.beam_size
    if decode.beam_size <= most:
        return []
    place = tree.get("decode", "beam_size") or tree.get("decode") or tree
    message = f"beam_size is at most half of the target's vocabulary, which is {most}, found {decode.beam_size}"
    return [Problem(place.span, message, f"set decode.beam_size to {most} or less, or enlarge the vocabulary")]


def schedule_rate(tree: Tree, train: Train, sizes: Mapping[str, Number]) -> list[Problem]:
    """The learning rate follows from a positive whole size of the model, or from its peak alone."""
    schedule, section = train.schedule, tree.get("train", "schedule") or tree
    if schedule.peak is not None:
        return _beside_peak(section, tree)
    widths = [name for name, size in sizes.items() if size > 0 and size % 1 == 0]
    if schedule.width in widths:
        return []
    place = section.get("width") or tree.get("sizes", schedule.width) or section
    message = f"the learning rate goes with {schedule.width}^-0.5, so {schedule.width} must be a positive whole size"
    similar = suggest(schedule.width, widths) if section.get("width") else None
    return [Problem(place.span, message, similar or "set schedule.width to a size of the model, or schedule.peak")]


def _beside_peak(section: Tree, tree: Tree) -> list[Problem]:
    """What peak makes idle; a file may set peak where the one that it extends sets a scale or a width."""
    source = section.entries["peak"].key.source
    files = () if source.setting else (tree.span.source, source)
    return [
        Problem(entry.key, f"{name} does nothing where peak sets the learning rate", f"remove {name} or peak")
        for name, entry in section.entries.items()
        if name in ("scale", "width") and (entry.key.source.setting or entry.key.source in files)
    ]


def learned_limits(model: Model, train: Train, graph: Graph) -> list[Problem]:
    """Learned positions reach as far as the longest sentences that are trained on."""
    return [
        Problem(
            model.declared[axis.name].span,
            f"{axis.size} positions are too few for the {train.max_length} tokens of train.max_length",
            "raise the one, or lower the other",
        )
        for axis in _position_tables(graph, model)
        if axis.size is not None and axis.size < train.max_length and axis.name in model.declared
    ]


def _position_tables(graph: Graph, model: Model) -> Iterator[Axis]:
    producers = graph.producers()
    for node in graph.nodes:
        index = producers.get(node.inputs[0].name) if isinstance(node.op, Embedding) else None
        if index is not None and isinstance(index.op, Positions) and index.op.axis in model.inputs:
            yield node.inputs[1].type.axes[0]


def _all_text(inputs: Mapping[str, Input]) -> bool:
    return all(item.kind == "tokens" for item in inputs.values())


def _elsewhere(tree: Tree, name: str) -> str | None:
    """The choice that would use the name."""
    for block in reachable_blocks(tree).values():
        choose = block.tree.get("choose")
        for word, branch in _branches(block):
            if choose is not None and name in set(branch.words()):
                return f"only '{choose.value}: {word}' uses it"
    return None


def _branches(block: Entry) -> Iterator[tuple[str, Tree]]:
    for word, entry in block.tree.entries.items():
        if word not in ("doc", "takes", "choose"):
            yield word, entry.tree
