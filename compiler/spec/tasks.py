"""What the task of a spec asks of its inputs and results, and which settings have an effect for it."""

from collections.abc import Mapping, Sequence

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.results.kind import KINDS, Declared, positions_of
from xformc.compiler.spec.load import is_own
from xformc.compiler.spec.model import Input, sequences_of
from xformc.compiler.spec.problems import Problem, Span, listed
from xformc.compiler.spec.results import task_of
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest
from xformc.format.search_options import CONTROLS
from xformc.format.tasks import NAMED, SAMPLED, TASKS, WRITING, Decoding
from xformc.format.tokens import SpecialTokens

_BEAM = ("preset", "beam_size", "n_best", "length_penalty")

DECODE: Mapping[Decoding, tuple[str, ...]] = {
    "search": (*_BEAM, "max_length", *CONTROLS, "prefix", "suppress_first", "alignment", "coverage", "speech"),
    "sample": ("sample",),
    "forward": (),
}
"""The keys of the section `decode` that have an effect."""

SEARCHED = ("sample", *_BEAM, *(name for name in CONTROLS if name not in ("prefix_bias", "coverage_penalty")))
"""Those of a language model, whose engine also searches."""

PER_POSITION: Mapping[str, bool] = {"tagging": True, "classification": False}
"""Whether the labels of these tasks are those of positions."""


def written_in(results: tuple[Declared, ...]) -> str | None:
    """The input of tokens that is written token by token, or None."""
    return next((result.name for result in results if result.kind == "text"), None)


def written_logits(results: tuple[Declared, ...], inputs: Mapping[str, Input]) -> Type | None:
    """The type of the logits of the text that is written, or None."""
    name = written_in(results)
    return None if name is None else Type("float32", (Axis("batch"), Axis(name), inputs[name].axes[0]))


def unfit(task: str, declared: Declared, type: Type, inputs: Mapping[str, Input]) -> str | None:
    """What a result must be, in words, unless it has a type that fits."""
    sequences = sequences_of(inputs)
    if declared.kind == "text":
        wanted = written_logits((declared,), inputs)
        return None if type == wanted else str(wanted)
    kind = KINDS[declared.kind]
    each = PER_POSITION.get(task)
    if each is None:
        return None if kind.fits(type, sequences, declared.settings) else kind.wanted(sequences, declared.settings)
    if kind.fits(type, sequences, declared.settings) and (positions_of(type, sequences) is not None) == each:
        return None
    positions = f"{' or '.join(sequences) or 'POSITIONS'}, " if each else ""
    return f"float32[batch, {positions}LABELS], where LABELS is a size of at least 2"


def task_problems(tree: Tree, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Check the declared inputs for the task, and report settings without effect."""
    word, declared = tree.get("task"), tree.get("inputs")
    task = task_of(tree, results, inputs) if tree.get("results") is not None else "" if word is None else word.word
    if declared is None or task not in TASKS:
        return []
    along = _along_problems(inputs, results)
    needed = _special_problems(task, tree, inputs, written_in(results))
    needed += _end_problems(inputs, results)
    needed += [*_token_problems(tree, inputs, results), *_speech_problems(tree, inputs, results)]
    return [*_input_problems(task, declared, inputs), *along, *needed, *_idle_problems(task, tree, inputs, results)]


def _token_problems(tree: Tree, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Report suppressed tokens and tokens of a prefix that are not in the vocabulary of the written text."""
    written, decode = inputs.get(written_in(results) or ""), tree.get("decode")
    if written is None or decode is None:
        return []
    sections = [section for section in (decode, decode.get("sample")) if section is not None]
    lists = [
        found
        for section in sections
        for key in ("suppress_tokens", "suppress_first", "prefix")
        if (found := section.get(key)) is not None
    ]
    size = written.axes[0].size or 0
    known = f"the vocabulary of the written text has ids from 0 to {size - 1}"
    begun, special = decode.get("prefix"), written.special
    no_text = [
        Problem(item.span, f"{item.value} cannot be in a prefix: it is the padding or an end token")
        for item in (() if begun is None else begun.items)
        if item.value in (special.pad, *special.end)
    ]
    return no_text + [
        Problem(item.span, f"{item.value} is no token: {known}")
        for found in lists
        for item in found.items
        if isinstance(item.value, int) and item.value >= size
    ]


def _speech_problems(tree: Tree, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Report speech of a model without one sound, and its tokens that are not in the vocabulary."""
    written, speech = inputs.get(written_in(results) or ""), tree.get("decode", "speech")
    if written is None or speech is None or not isinstance(speech.value, dict):
        return []
    if sum(item.rate is not None for item in inputs.values()) != 1:
        message = "decode.speech has no effect here: there must be one input that is a sound, with a rate"
        return [Problem(speech.span, message, "remove it")]
    size = written.axes[0].size or 0
    groups = [one for key in ("languages", "tasks") if (one := speech.get(key)) is not None]
    items = [entry.tree for one in groups if isinstance(one.value, dict) for entry in one.value.values()]
    items += [one for one in [speech.get("no_timestamps")] if one is not None]
    first = speech.get("timestamps", "first")
    known = f"the vocabulary of the written text has ids from 0 to {size - 1}"
    return [
        *([] if first is None else _time_problems(first, items, written.special)),
        *(
            Problem(item.span, f"{item.value} is no token: {known}")
            for item in [*items, *([] if first is None else [first])]
            if isinstance(item.value, int) and item.value >= size
        ),
    ]


def _time_problems(first: Tree, items: Sequence[Tree], special: SpecialTokens) -> list[Problem]:
    """Report a first time before other tokens, and words that are not below the end tokens."""
    if not isinstance(first.value, int):
        return []
    known = (*special.ids, *(item.value for item in items if isinstance(item.value, int)))
    if first.value <= max(known):
        return [Problem(first.span, f"{first.value} cannot be the first time: the token {max(known)} comes before it")]
    if 2 * min(special.end) < first.value:
        message = f"timestamps need words below the end token, which is {min(special.end)} here"
        return [Problem(first.span, message, "give `special_tokens` whose `end` follows the words")]
    return []


def _special_problems(task: str, tree: Tree, inputs: Mapping[str, Input], written: str | None) -> list[Problem]:
    """Report special tokens that the task cannot do without: padding of what is read, and what a written text begins
    with.
    """
    if not TASKS[task].writes or task == "language_model":
        return []
    lacking: dict[Span, str] = {}
    for name, item in inputs.items():
        own, shared = tree.get("inputs", name, "special_tokens"), tree.get("special_tokens")
        for key, what in (("begin", "a begin token"), ("pad", "padding")):
            said = (own and own.get(key)) or (shared and shared.get(key))
            needed = item.kind == "tokens" and (key == "begin") == (name == written)
            if said and needed and getattr(item.special, key) is None:
                lacking[said.span] = what
    return [
        Problem(span, f"{task} needs {what}; only a language_model may have none") for span, what in lacking.items()
    ]


def _end_problems(inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Report texts without an end that need one: the written text, and those along which others lie."""
    written, along = written_in(results), {item.of for item in inputs.values() if item.kind == "tokens"}
    reasons = {name: "the model ends it by an end token" for name in inputs if name == written}
    reasons |= {name: "tokens along it have an end" for name in inputs if name in along}
    return [
        Problem(item.span, f"'{name}' cannot have 'ends: false': {reasons[name]}", "remove it")
        for name, item in inputs.items()
        if name in reasons and item.kind == "tokens" and not item.special.ends
    ]


def _along_problems(inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Report inputs along the text that the model writes: nobody knows them before the text."""
    written = written_in(results)
    return [
        Problem(item.span, f"'{name}' cannot lie along '{written}', which the model writes token by token")
        for name, item in inputs.items()
        if written is not None and item.of == written and item.kind in ("tokens", "vectors")
    ]


def _input_problems(name: str, inputs: Tree, known: Mapping[str, Input]) -> list[Problem]:
    wanted = TASKS[name].inputs
    if TASKS[name].alone and inputs.entries:
        return _alone_problems(name, inputs, known)
    if wanted is None:
        return [] if inputs.entries else [Problem(inputs.span, f"{name} needs an input")]
    problems = [
        Problem(inputs.span, f"{name} needs the input '{item}'") for item in wanted if item not in inputs.entries
    ]
    for item, entry in inputs.entries.items():
        if item not in wanted:
            hint = suggest(item, wanted) or f"its inputs are {' and '.join(wanted)}"
            problems.append(Problem(entry.key, f"{name} has no input '{item}'", hint))
        elif item in known and known[item].kind != "tokens":
            hint = f"write {item}: {{tokens: SIZE}}"
            problems.append(
                Problem(entry.key, f"the input '{item}' of {name} must be tokens, found {known[item].kind}", hint)
            )
    return problems


def _alone_problems(name: str, inputs: Tree, known: Mapping[str, Input]) -> list[Problem]:
    """Report inputs beside the first, and a first input that is not tokens."""
    (first, entry), *others = inputs.entries.items()
    hint = f"declare results for a text with other inputs: results: {{{first}: {{text: STAGE}}}}"
    found = [Problem(other.key, f"{name} has one input, found also '{more}'", hint) for more, other in others]
    if not others and first in known and known[first].kind != "tokens":
        message = f"the input '{first}' of {name} must be tokens, found {known[first].kind}"
        found.append(Problem(entry.key, message, f"write {first}: {{tokens: SIZE}}"))
    return found


def idle_settings(
    name: str, inputs: Mapping[str, Input], results: tuple[Declared, ...] = ()
) -> dict[tuple[str, ...], str]:
    """The settings without effect for this task, these inputs and results: the path of each, and the reason."""
    used = SEARCHED if name == "language_model" else DECODE[TASKS[name].decoding]
    arrays = [other for other, item in inputs.items() if item.kind != "tokens"]
    spelled = sum(KINDS[item.kind].tokenized for item in results)
    texts = len(inputs) - len(arrays) + spelled
    idle: dict[tuple[str, ...], str] = {}
    if not used:
        others = listed(other for other in NAMED if DECODE[TASKS[other].decoding])
        idle["decode",] = f"{name} predicts labels; only {others} has decoding settings"
    for keys in DECODE.values() if used else ():
        for key in keys:
            if key not in used:
                idle["decode", key] = f"the decoding settings of {name} are {', '.join(used)}"
    if "alignment" in used and name != "translation":
        idle["decode", "alignment"] = "only translation aligns its text with a source"
        for key in ("coverage", "coverage_penalty"):
            idle["decode", key] = "only translation has a source that its text covers"
    if arrays and (name in NAMED or not texts):
        beside = "; with `results` in place of `task`, they may have text beside it" if texts else ""
        idle["train", "tokenizer"] = f"the input {arrays[0]} is not text, so examples are arrays{beside}"
    elif texts == 1:
        idle["train", "tokenizer", "shared"] = "the model has only one text" if arrays else _ONE
    if not sequences_of(inputs):
        idle["train", "max_length"] = "no input has positions"
    return idle


def _idle_problems(name: str, tree: Tree, inputs: Mapping[str, Input], results: tuple[Declared, ...]) -> list[Problem]:
    """Report settings without effect, unless the inputs are already wrong.

    A variant that changes the results inherits settings that only the results before it used, and hands them on.
    """
    declared = tree.get("inputs")
    if not inputs or declared is None or declared.entries.keys() != inputs.keys():
        return []
    idle = idle_settings(name, inputs, results).items()
    found = [(entry, path, why) for path, why in idle if (entry := _entry(tree, path)) is not None]
    chosen = tree.entries.get("results") or tree.entries.get("task")
    return [
        Problem(entry.key, f"{'.'.join(path)} has no effect here: {why}", "remove it")
        for entry, path, why in found
        if is_own(entry, tree) or chosen is None or (entry.key.source == chosen.key.source and not _chosen(name, path))
    ]


def _chosen(name: str, path: tuple[str, ...]) -> bool:
    """Whether a variant has chosen between searching and sampling, so that it may inherit the settings of the other."""
    return path[0] == "decode" and name in (WRITING, SAMPLED)


def _entry(tree: Tree, path: tuple[str, ...]) -> Entry | None:
    parent = tree.get(*path[:-1])
    return None if parent is None else parent.entries.get(path[-1])


_ONE = "the model has only one input"
