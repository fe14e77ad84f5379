"""Checks across the sections of a spec, and checks for declarations that nothing uses."""

from collections.abc import Iterator, Mapping

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import made_lengths
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.loss import CrossEntropy
from xformc.compiler.ops.positions import Positions, limit_of
from xformc.compiler.results.kind import KINDS, Declared, output_names
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.model import Input, Model, read_texts
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.resolve import reachable_blocks
from xformc.compiler.spec.sections import SCORED, Decode, Schedule, Train
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest
from xformc.format.interfaces import CONTROLS, END_TOKEN, OPTIONS, RESULTS
from xformc.format.tasks import TASKS


def unused(tree: Tree, kind: str, section: str, used: frozenset[str]) -> list[Problem]:
    """Report names that the file itself declares under `section` and nothing uses; what it extends is not reported."""
    found = tree.get(section)
    entries = {} if found is None else found.entries
    idle = {name: entry for name, entry in entries.items() if name not in used and is_own(entry, tree)}
    hints = {name: suggest(name, used) or _elsewhere(tree, name) or _REMOVE for name in idle}
    return [Problem(entry.key, f"the {kind} '{name}' is never used", hints[name]) for name, entry in idle.items()]


_REMOVE = "remove it; what is inherited and never used does no harm"


def unused_blocks(tree: Tree) -> list[Problem]:
    """Report the file's own blocks that neither the model nor another block uses."""
    return unused(tree, "block", "blocks", frozenset(reachable_blocks(tree)))


def shared_vocabulary(tree: Tree, train: Train, inputs: Mapping[str, Input]) -> list[Problem]:
    """Check that inputs with a shared tokenizer have one vocabulary size."""
    axes = [axis for item in inputs.values() for axis in item.axes]
    if not _all_text(inputs) or not train.tokenizer.shared or len({axis.size for axis in axes}) == 1:
        return []
    span = (tree.get("train", "tokenizer", "shared") or tree).span
    found = ", ".join(map(str, axes))
    return [Problem(span, f"a shared tokenizer needs one vocabulary, found {found}", "set 'shared: false'")]


def word_pieces(tree: Tree, task: str | None, train: Train, inputs: Mapping[str, Input]) -> list[Problem]:
    """Check that text of which each word has a label, or a token of another input, has a word tokenizer."""
    aligned = next((name for name, item in inputs.items() if item.kind == "tokens" and item.of), None)
    if aligned is not None and _all_text(inputs) and train.tokenizer.kind != "word":
        place = tree.get("train", "tokenizer", "kind") or tree.get("train", "tokenizer") or tree.get("inputs") or tree
        message = (
            f"'{aligned}' has a token for each word of '{inputs[aligned].of}', so train.tokenizer.kind must be word"
        )
        hint = "write train: {tokenizer: {kind: word}}"
        return [Problem(place.span, f"{message}, found {train.tokenizer.kind}", hint)]
    if task != "tagging" or not _all_text(inputs) or train.tokenizer.kind == "word":
        return []
    place = tree.get("train", "tokenizer", "kind") or tree.get("train", "tokenizer") or tree.get("task") or tree
    message = f"tagging labels whole words, so train.tokenizer.kind must be word, found {train.tokenizer.kind}"
    return [Problem(place.span, message, "write train: {tokenizer: {kind: word}}")]


def objective_fits(
    tree: Tree, train: Train, inputs: Mapping[str, Input], results: tuple[Declared, ...]
) -> list[Problem]:
    """Check that a spec with an objective declares the one result that it trains, of inputs of tokens."""
    if train.objective is None:
        return []
    span, masked = (tree.get("train", "objective") or tree).span, train.objective.masked is not None
    kinds, count = [result.kind for result in results], 1 if masked else 2
    if tree.get("results") is None or kinds != ["labels" if masked else "text"] or len(inputs) != count:
        wanted = "labels of each position of its only input" if masked else "text, written from one other input"
        hint = "results: {tokens: {labels: STAGE, each: token}}" if masked else "results: {target: {text: STAGE}}"
        return [Problem(span, f"this objective needs a spec with declared results, a single one: {wanted}", hint)]
    if not _all_text(inputs) or (not masked and not train.tokenizer.shared):
        return [Problem(span, "this objective needs inputs of tokens that share one vocabulary")]
    if masked and results[0].settings["each"] != "token":
        return [Problem(span, "masked tokens are labels of each token, not of each word", "write each: token")]
    return []


def r_drop_fits(tree: Tree, train: Train, results: tuple[Declared, ...]) -> list[Problem]:
    """Check that R-Drop has distributions to compare: every loss is a cross entropy."""
    other = next((one for one in results if not isinstance(KINDS[one.kind].loss(one, 0.0), CrossEntropy)), None)
    if train.r_drop is None or other is None:
        return []
    span = (tree.get("train", "r_drop") or tree).span
    message = f"r_drop compares distributions over classes, and '{other.name}' has none"
    return [Problem(span, message, "leave r_drop out: it needs results that are text, or one label each")]


def sampling_fits(tree: Tree, task: str, train: Train) -> list[Problem]:
    """Check that texts can be split into tokens in several ways."""
    wanted, tasks = train.tokenizer, ("translation", "language_model")
    if wanted.sampling is None:
        return []
    span = (tree.get("train", "tokenizer", "sampling") or tree).span
    if wanted.kind not in ("bpe", "unigram"):
        return [
            Problem(span, f"a tokenizer of the kind {wanted.kind} has one way to split a text", "use bpe or unigram")
        ]
    if task not in tasks or train.objective is not None or tree.get("results") is not None:
        return [Problem(span, f"sampling is for the tasks {' and '.join(tasks)}; this task is {task}", "leave it out")]
    return []


def noise_fits(tree: Tree, train: Train, inputs: Mapping[str, Input], written: str | None) -> list[Problem]:
    """Check that noise has a text that the model reads and does not write."""
    if train.noise is None or (train.objective is None and read_texts(inputs, written)):
        return []
    message = "noise changes texts that are read and not written, and "
    why = "this model has none" if train.objective is None else "an objective has noise of its own"
    return [Problem((tree.get("train", "noise") or tree).span, message + why, "leave noise out")]


def score_fits(tree: Tree, task: str, train: Train) -> list[Problem]:
    """Check that checkpoints are scored only if the task has scores."""
    if not train.scored or task == "translation":
        return []
    if train.select in SCORED:
        span = (tree.get("train", "select") or tree).span
        return [Problem(span, f"{train.select} is a score of translations; this task is {task}", "write select: best")]
    span = (tree.get("train", "checkpoint", "scores") or tree).span
    return [Problem(span, f"checkpoints of translations are scored; this task is {task}", "leave scores out")]


def named_apart(tree: Tree, train: Train, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Check that the data can have a column for each input and each result: only an objective makes results itself."""
    section = tree.get("results")
    if section is None or train.objective is not None:
        return []
    return [
        Problem(
            section.entries[result.name].key,
            f"'{result.name}' is an input, and the data would have two columns of this name",
            "give the result another name; only written text has the name of its input",
        )
        for result in results
        if result.kind != "text" and result.name in inputs
    ]


def values_apart(tree: Tree, task: str, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Check that the inputs and outputs of the engine's model have different names."""
    section = tree.get("results")
    if section is None:
        return []
    decoding = TASKS[task].decoding
    taken = {*OPTIONS[decoding], END_TOKEN, *CONTROLS, *RESULTS} if TASKS[task].writes else set[str]()
    named = [
        (name, inputs[item].span)
        for item in inputs
        if not any(item == result.name and result.kind == "text" for result in results)
        for name in ((item, f"{item}_mask") if inputs[item].kind == "vectors" else (item,))
    ]
    for result in results:
        outputs = () if result.name in inputs else output_names(result)
        named += [(name, section.entries[result.name].key) for name in outputs]
    problems: list[Problem] = []
    for name, span in named:
        if name in taken:
            message = f"the engine's model would have two inputs or outputs called '{name}'"
            problems.append(Problem(span, message, "choose another name"))
        taken.add(name)
    return problems


def wide_beam(tree: Tree, task: str, written: str | None, decode: Decode, inputs: Mapping[str, Input]) -> list[Problem]:
    """Check that the vocabulary has as many tokens as a step of the search looks at: 2 W for a beam of width W, and W
    more for each further end token.

    A language model with fewer tokens searches with a narrower beam than the default one.
    """
    if written is None or (TASKS[task].decoding != "search" and task != "language_model"):
        return []
    special, vocabulary = inputs[written].special, inputs[written].vocabulary
    most, share = special.widest(vocabulary), "half" if special.choices == 2 else f"1/{special.choices}"
    if task == "language_model":
        most = max(most, Decode().beam_size)
    if decode.beam_size <= most:
        return []
    place = tree.get("decode", "beam_size") or tree.get("decode") or tree
    message = f"beam_size must be at most {most}, {share} of the target vocabulary, found {decode.beam_size}"
    return [Problem(place.span, message, f"set decode.beam_size to {most} or less, or enlarge the vocabulary")]


def schedule_rate(tree: Tree, train: Train, sizes: Mapping[str, Number]) -> list[Problem]:
    """Check that the schedule has a peak, or scales with a positive whole size, and has no setting without effect."""
    schedule, section = train.schedule, tree.get("train", "schedule") or tree
    kind, problems = schedule.kind, _idle(schedule, section, tree)
    chosen = (section.get("kind") or section).span
    if kind == "warmup_stable_decay" and schedule.decay_steps is None:
        hint = "add decay_steps, such as a tenth of train.steps"
        problems.append(Problem(chosen, f"the schedule {kind} needs decay_steps", hint))
    if kind != "inverse_square_root" and schedule.peak is None:
        hint = "add the highest learning rate, such as peak: 0.001"
        problems.append(Problem(chosen, f"the schedule {kind} needs peak", hint))
    widths = [name for name, size in sizes.items() if size > 0 and size % 1 == 0]
    if "width" in schedule.idle() or schedule.width in widths:
        return problems
    place = section.get("width") or tree.get("sizes", schedule.width) or section
    message = f"the learning rate scales with {schedule.width}^-0.5, so {schedule.width} must be a positive whole size"
    similar = suggest(schedule.width, widths) if section.get("width") else None
    hint = similar or "set schedule.width to a size of the model, or schedule.peak"
    return [*problems, Problem(place.span, message, hint)]


def _idle(schedule: Schedule, section: Tree, tree: Tree) -> list[Problem]:
    """Report settings that others override, unless the one that overrides is of a later file."""
    problems: list[Problem] = []
    for name in sorted(schedule.idle() & section.entries.keys() - {"peak"}):
        key = section.entries[name].key
        over = "peak" if schedule.kind == "inverse_square_root" and name in ("scale", "width") else "kind"
        why = "when peak sets the learning rate" if over == "peak" else f"on the schedule {schedule.kind}"
        setter = section.entries.get(over)
        files = (tree.span.source, key.source if setter is None else setter.key.source)
        later = setter is not None and setter.key.source.setting
        hint = f"remove {name}, or set kind" if setter is None else f"remove {name} or {over}"
        if key.source.setting or (key.source in files and not later):
            problems.append(Problem(key, f"{name} has no effect {why}", hint))
    return problems


def learned_limits(model: Model, train: Train, graph: Graph) -> list[Problem]:
    """Check that learned positions cover the longest training sentences."""
    return [
        Problem(
            model.declared[axis.name].span,
            f"{_counted(axis, limit)} are fewer than train.max_length, which is {train.max_length}",
            "raise the size, or lower train.max_length",
        )
        for axis, limit in _position_tables(graph, model)
        if limit < train.max_length and axis.name in model.declared
    ]


def _counted(axis: Axis, limit: int) -> str:
    return f"{axis.size} positions" + (f", which are {limit} of the input," if axis.size != limit else "")


def _position_tables(graph: Graph, model: Model) -> Iterator[tuple[Axis, int]]:
    """The axis of each table of positions, and for how many positions of an input it suffices."""
    producers, made = graph.producers(), dict(made_lengths(graph.nodes))
    for node in graph.nodes:
        index = producers.get(node.inputs[0].name) if isinstance(node.op, Embedding) else None
        if index is not None and isinstance(index.op, Positions):
            axis = node.inputs[1].type.axes[0]
            limits = (limit_of(name, index.op.axis, axis.size or 0, made) for name in model.inputs)
            yield from ((axis, limit) for limit in limits if limit is not None)


def _all_text(inputs: Mapping[str, Input]) -> bool:
    return all(item.kind == "tokens" for item in inputs.values())


def _elsewhere(tree: Tree, name: str) -> str | None:
    """A hint that names the choice that would use this name; in a block with an argument of this name it is another."""
    for block in reachable_blocks(tree).values():
        choose, takes = block.tree.get("choose"), block.tree.get("takes")
        if takes is not None and name in takes.entries:
            continue
        for word, branch in _branches(block):
            if choose is not None and name in set(branch.words()):
                return f"only '{choose.value}: {word}' uses it"
    return None


def _branches(block: Entry) -> Iterator[tuple[str, Tree]]:
    for word, entry in block.tree.entries.items():
        if word not in ("doc", "takes", "choose"):
            yield word, entry.tree
