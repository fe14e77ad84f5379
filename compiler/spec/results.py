"""Reads the results of a spec: those that it declares, or those of its task."""

from collections.abc import Mapping
from typing import Any

from xformc.compiler.results.kind import KINDS, Allowed, Declared, Kind, defaults
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.model import Input
from xformc.compiler.spec.problems import Problem, Span
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest
from xformc.format.results import Setting
from xformc.format.tasks import RESULTS, SAMPLED, WRITING
from xformc.format.tokens import PAD

LABELLED = "labels"
"""The name of the result of a task that labels."""


def read_results(tree: Tree, inputs: Mapping[str, Input], problems: list[Problem]) -> tuple[Declared, ...]:
    """The results of a spec, the written text first; mistakes are appended to `problems`."""
    section = tree.get("results")
    if section is None or not section.entries:
        return _of_task(tree, inputs, problems)
    if tree.get("task") is not None:
        problems.append(Problem(tree.entries["task"].key, "a spec has either a task or results", "remove one of them"))
    reader = _Reader(tree, inputs, problems)
    found = [item for name, entry in section.entries.items() if (item := reader.result(name, entry)) is not None]
    written = [item for item in found if item.kind == "text"]
    for item in written[1:]:
        key = section.entries[item.name].key
        problems.append(Problem(key, f"only one text can be written, and '{written[0].name}' is one"))
    reader.losses(found)
    return tuple([*written, *(item for item in found if item.kind != "text")])


def task_of(tree: Tree, results: tuple[Declared, ...], inputs: Mapping[str, Input]) -> str:
    """The task of a spec that declares these results.

    Text with other inputs is sampled if the section `decode` sets `sample`, and nothing of a search in the same file.
    """
    written = [item.name for item in results if item.kind == "text"]
    if written and list(inputs) == written:
        return "language_model"
    return RESULTS if not written else SAMPLED if _samples(tree) else WRITING


def _samples(tree: Tree) -> bool:
    section = tree.get("decode")
    entries = {} if section is None else section.entries
    own = [key for key, entry in entries.items() if is_own(entry, tree)]
    return "sample" in (own or entries)


def _of_task(tree: Tree, inputs: Mapping[str, Input], problems: list[Problem]) -> tuple[Declared, ...]:
    task = tree.get("task")
    if task is None and isinstance(tree.value, dict):
        problems.append(Problem(tree.span, "the key 'task' is missing", "a spec has a task, or declares its results"))
    alone = next(iter(inputs), "text")
    written = {"translation": "target", "language_model": alone}.get("" if task is None else task.word)
    kind = "labels" if written is None else "text"
    section = tree.get("train", "losses")
    if section is not None and section.entries:
        key = tree.entries["train"].tree.entries["losses"].key
        hint = "declare the results of the model: results: {NAME: {KIND: STAGE}}"
        problems.append(Problem(key, "train.losses needs declared results", hint))
    settings, losses = defaults(KINDS[kind].settings), defaults(KINDS[kind].losses)
    ignore = PAD if written is None or written not in inputs else inputs[written].special.ignored
    return (Declared(written or LABELLED, kind, None, settings, losses, ignore=ignore),)


class _Reader:
    """Reads the entries of `results` and `train.losses`."""

    def __init__(self, tree: Tree, inputs: Mapping[str, Input], problems: list[Problem]) -> None:
        self.inputs, self.problems = inputs, problems
        self.stages = {} if (model := tree.get("model")) is None else model.entries
        self.weights = {} if (losses := tree.get("train", "losses")) is None else losses.entries

    def result(self, name: str, entry: Entry) -> Declared | None:
        """The result of this entry, or None with a problem."""
        kinds = [key for key in entry.tree.entries if key in KINDS]
        if len(kinds) != 1:
            known = ", ".join(KINDS)
            message = f"a result is of one kind, found {', '.join(kinds) or entry.tree.described()}"
            hint = next(filter(None, (suggest(key, KINDS) for key in entry.tree.entries)), None)
            self.problem(entry.key, message, hint or f"write {name}: {{KIND: STAGE}}; the kinds are {known}")
            return None
        kind, stage = KINDS[kinds[0]], entry.tree.entries[kinds[0]].tree
        if stage.word not in self.stages:
            hint = suggest(stage.word, self.stages) or f"the stages are {', '.join(self.stages)}"
            self.problem(stage.span, f"must be a stage of the model, found {stage.described()}", hint)
        if kind.name == "text" and not self.writable(name, entry.key):
            return None
        own = {key: item for key, item in entry.tree.entries.items() if key != kind.name}
        settings = self.settings(own, kind.settings, f"results of kind {kind.name}")
        refused = kind.refused(name, self.inputs, settings)
        if refused is not None:
            self.problem(entry.key, refused)
        given = dict(self.weights[name].tree.entries) if name in self.weights else {}
        smooth = kind.smoothed and not settings.get("several") and "label_smoothing" in given
        smoothing = self.smoothing(given.pop("label_smoothing").tree) if smooth else None
        loss = self.settings(given, {"weight": 1.0, **kind.losses}, f"losses of {kind.name}")
        weight = float(loss.pop("weight"))
        ignore = self.inputs[name].special.ignored if kind.name == "text" else PAD
        return Declared(name, kind.name, stage.word, settings, loss, weight, ignore, smoothing)

    def writable(self, name: str, key: Span) -> bool:
        """Whether an input of tokens has this name."""
        if name in self.inputs and self.inputs[name].kind == "tokens":
            return True
        texts = [other for other, item in self.inputs.items() if item.kind == "tokens"]
        if self.inputs:
            hint = suggest(name, texts) or "declare an input of tokens with this name: it gives the tokens so far"
            self.problem(key, f"written text is named after its input, and there is no input of tokens '{name}'", hint)
        return False

    def losses(self, results: list[Declared]) -> None:
        """Report losses of results that are not declared."""
        known = [item.name for item in results]
        for name, entry in self.weights.items():
            if name not in known:
                hint = suggest(name, known) or f"the results are {', '.join(known)}"
                self.problem(entry.key, f"there is no result '{name}'", hint)

    def settings(self, entries: Mapping[str, Entry], allowed: Allowed, what: str) -> dict[str, Any]:
        """The settings, completed with their defaults."""
        found: dict[str, Setting] = defaults(allowed)
        for key, entry in entries.items():
            if key not in allowed:
                hint = suggest(key, allowed) or (f"there are {', '.join(allowed)}" if allowed else "remove it")
                self.problem(entry.key, f"{what} have no setting '{key}'", hint)
            elif (wrong := _unfit(entry.tree, allowed[key])) is not None:
                self.problem(entry.tree.span, f"{key} must be {wrong}, found {entry.tree.described()}")
            else:
                value: Any = entry.tree.plain()
                found[key] = float(value) if isinstance(allowed[key], float) else value
        return found

    def smoothing(self, tree: Tree) -> float:
        """The label smoothing of a result's loss."""
        value = tree.plain()
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.problem(tree.span, f"label_smoothing must be at least 0 and less than 1, found {tree.described()}")
            return 0.0
        return float(value)

    def problem(self, span: Span, message: str, hint: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(Problem(span, message, hint))


def _unfit(tree: Tree, allowed: Setting | tuple[str, ...]) -> str | None:
    """What a setting must be, in words, unless it is."""
    value = tree.plain()
    if isinstance(allowed, tuple):
        return None if value in allowed else " or ".join(allowed)
    if isinstance(allowed, bool):
        return None if isinstance(value, bool) else "true or false"
    whole = isinstance(allowed, int)
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e9
    if whole:
        return None if number and isinstance(value, int) else "a positive whole number"
    return None if number else "a positive number"


def kind_of(result: Declared) -> Kind:
    """The kind of a result."""
    return KINDS[result.kind]
