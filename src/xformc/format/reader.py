"""Reads engine.json."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, cast, get_args

from xformc.errors import UserError
from xformc.format.document import Document, read_document
from xformc.format.inputs import Input
from xformc.format.interfaces import PROBABILITIES, given_inputs
from xformc.format.interfaces import RESULTS as TEXT_OUTPUTS
from xformc.format.manifest import (
    CHANGED,
    COPY,
    FILE_BYTES,
    FORMAT,
    MANIFEST_BYTES,
    OTHER_VERSION,
    Calibration,
    FileRecord,
    Manifest,
    SampleOptions,
    SearchOptions,
    manifest_checksum,
)
from xformc.format.names import MANIFEST, MODEL, OF_TEXT
from xformc.format.plans import Plan, read_plan
from xformc.format.precision import WORDS, Precision
from xformc.format.results import Result, Setting, of_text
from xformc.format.search_options import EDITS, MAX_PREFIX, MAX_SUPPRESSED, OPTIONS, SearchOption
from xformc.format.speech import MAX_SECONDS, MIN_STEP, Speech, Timestamps
from xformc.format.targets import Target
from xformc.format.tasks import NAMED, TASKS
from xformc.format.tokens import MAX_ENDS, SpecialTokens

DefaultsReader = Callable[[Document], SearchOptions | SampleOptions]
KINDS = ("tokens", "vectors", "values", "edges")
MAX_SIZE = 2**31


def read_manifest(directory: Path | str) -> Manifest:
    """Read and check `directory`/engine.json without reading the other files.

    Raises: UserError if the folder is not an engine, has another format, or has invalid values.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise UserError("no such folder" if not folder.exists() else "not a folder", place=str(folder), hint=_BUILD)
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"not an engine: it has no {MANIFEST}", place=str(folder), hint=_BUILD)
    document = read_document(path, limit=MANIFEST_BYTES)
    found = document.integer("format", 1)
    if found != FORMAT:
        raise UserError(
            f"this engine has format {found}; this xformc reads format {FORMAT}", place=str(path), hint=OTHER_VERSION
        )
    if document.text("checksum") != manifest_checksum(document.fields):
        raise UserError(CHANGED, place=document.place, hint=COPY)
    manifest = _read_engine(document)
    models = (MODEL, OF_TEXT) if of_text(manifest.results) else (MODEL,)
    for name in (*models, *manifest.tokenizers.values()):
        if name not in manifest.files:
            raise UserError(f"{name} is not listed in files", place=document.place, hint=COPY)
    return manifest


def _read_engine(document: Document) -> Manifest:
    task, inputs = document.text("task", tuple(TASKS)), _read_inputs(document.section("inputs"))
    _check_names(task, inputs, document.place)
    section = document.section("results")
    results = {name: _read_result(section.section(name), tuple(inputs)) for name in section.fields}
    if not (_fit(task, inputs, results) and (task not in NAMED or _fit_word(task, results))):
        found = ", ".join(f"{name}: {result.kind}" for name, result in results.items())
        raise UserError(f"the results do not fit the task {task}: {found}", place=document.place, hint=COPY)
    return _read_rest(document, task, inputs, results)


def _fit(task: str, inputs: Mapping[str, Input], results: Mapping[str, Result]) -> bool:
    """Whether the results are those of the task, one written text, which is first, or none; and can be read."""
    kinds, outputs = [result.kind for result in results.values()], [one for r in results.values() for one in r.outputs]
    written = kinds.count("text")
    given = given_inputs(inputs, results)
    sequences = [None, *(name for name, item in given.items() if item.is_sequence)]
    return (
        bool(results)
        and (bool(given) or TASKS[task].alone)
        and written == TASKS[task].writes == len(inputs) - len(given) == kinds[:1].count("text")
        and len(set(outputs)) == len(outputs)
        and all(result.of is None or result.of in inputs.keys() - given.keys() for result in results.values())
        and all(result.of is None for result in results.values() if result.kind == "text")
        and all(
            inputs[name].kind == "tokens" and result.outputs == TEXT_OUTPUTS
            if result.kind == "text"
            else result.positions in sequences
            for name, result in results.items()
        )
        and all(
            [*result.axes.values()] == [len(result.labels or ())]
            for result in results.values()
            if result.kind == "labels"
        )
    )


def _fit_word(task: str, results: Mapping[str, Result]) -> bool:
    """Whether the results are the only one of a task that a spec names by a word: the last input, or labels."""
    if len(results) != 1:
        return False
    ((name, result),) = results.items()
    if TASKS[task].writes:
        return name in (TASKS[task].inputs or (name,))[-1:]
    labelled = (result.positions is not None) == (task == "tagging")
    return labelled and result.kind == "labels" and result.outputs == (PROBABILITIES,)


def _read_result(document: Document, inputs: tuple[str, ...]) -> Result:
    axes, outputs, settings = document.section("axes"), document.optional_texts("outputs"), document.section("settings")
    return Result(
        document.text("kind"),
        axes={name: axes.integer(name, 1, MAX_SIZE) for name in axes.fields},
        positions=document.optional_text("positions", inputs),
        labels=document.optional_texts("labels"),
        settings={name: _read_setting(document, name, value) for name, value in settings.fields.items()},
        outputs=outputs or (),
        tokenizer=document.optional_text("tokenizer"),
        of=document.optional_text("of"),
    )


def _read_setting(document: Document, name: str, value: object) -> Setting:
    if isinstance(value, bool | int | float) or (isinstance(value, str) and value.isprintable()):
        return value
    raise UserError(f"the setting {name} must be a number or a word", place=document.place, hint=COPY)


def _read_rest(document: Document, task: str, inputs: Mapping[str, Input], results: Mapping[str, Result]) -> Manifest:
    reader = _DEFAULTS.get(TASKS[task].decoding)
    return Manifest(
        xformc=document.text("xformc"),
        name=document.text("name"),
        task=task,
        target=cast(Target, document.text("target", get_args(Target))),
        precision=_read_precision(document),
        inputs=inputs,
        results=results,
        defaults=None if reader is None else reader(document.section("defaults")),
        parameters=document.integer("parameters", 0),
        weights=document.text("weights"),
        files=_read_files(document.section("files")),
        plans=_read_plans(document.section("plans")) if "plans" in document.fields else {},
        refused=_read_refused(document.section("refused")) if "refused" in document.fields else {},
        calibration=_read_calibration(document.section("calibration")) if "calibration" in document.fields else None,
        operators=document.integer("operators", 1) if "operators" in document.fields else None,
        controls=document.optional_texts("controls") or () if "controls" in document.fields else (),
        caches="int8" if "caches" in document.fields and document.text("caches", ("int8",)) else "auto",
        prefix=document.ids("prefix", MAX_PREFIX, MAX_SIZE, distinct=False) if "prefix" in document.fields else (),
        speech=_read_speech(document.section("speech")) if "speech" in document.fields else None,
        suppress_first=(
            document.ids("suppress_first", MAX_SUPPRESSED, MAX_SIZE) if "suppress_first" in document.fields else ()
        ),
        beams=_read_search(document.section("beams")) if "beams" in document.fields else None,
        shortlist=document.boolean("shortlist") if "shortlist" in document.fields else False,
    )


def _read_speech(document: Document) -> Speech:
    tokens = {key: document.section(key) for key in ("languages", "tasks")}
    found = {
        key: {name: section.integer(name, 0, MAX_SIZE) for name in section.fields} for key, section in tokens.items()
    }
    silent = document.optional_integer("no_timestamps", 0)
    timestamps = _read_timestamps(document.section("timestamps")) if "timestamps" in document.fields else None
    return Speech(document.number("seconds", 0, MAX_SECONDS), found["languages"], found["tasks"], silent, timestamps)


def _read_timestamps(document: Document) -> Timestamps:
    step, latest = document.number("step", MIN_STEP, MAX_SECONDS), document.number("latest", 0, MAX_SECONDS)
    return Timestamps(document.integer("first", 1, MAX_SIZE), step, latest)


def _read_inputs(document: Document) -> dict[str, Input]:
    inputs = {name: _read_input(document.section(name), name, tuple(document.fields)) for name in document.fields}
    for name, item in inputs.items():
        if item.of is not None and not inputs[item.of].is_sequence:
            message = f"the input {name} needs the positions of {item.of}, which has none of its own"
            raise UserError(message, place=document.place, hint=COPY)
    return inputs


def _read_input(document: Document, name: str, inputs: tuple[str, ...]) -> Input:
    kind = document.text("kind", KINDS)
    axes = document.section("axes")
    read = Input(
        kind,
        vocabulary=document.integer("vocabulary", 4, MAX_SIZE) if kind == "tokens" else None,
        axes={name: axes.integer(name, 1, MAX_SIZE) for name in axes.fields},
        of=_read_of(document, kind, inputs),
        longest=document.optional_integer("longest", 1),
        tokenizer=document.optional_text("tokenizer") if kind == "tokens" else None,
        rate=document.optional_integer("rate", 1) if kind == "vectors" else None,
    )
    if kind == "tokens":
        read = replace(read, special=_read_special(document.section("special_tokens"), read.pieces))
    if read.rate is not None and (len(read.axes) != 1 or read.of is not None):
        message = f"the input {name} has a rate, but is no sequence of samples"
        raise UserError(message, place=document.place, hint=COPY)
    return read


def _read_of(document: Document, kind: str, inputs: tuple[str, ...]) -> str | None:
    """The input whose positions this one has or joins."""
    return document.text("of", inputs) if kind == "edges" else document.optional_text("of", inputs)


def _check_names(task: str, inputs: dict[str, Input], place: str) -> None:
    """Check that the runtime can feed these inputs to a model of this task. Raises: UserError if not."""
    wanted = TASKS[task].inputs
    tokens = all(item.kind == "tokens" for item in inputs.values())
    wrong = wanted is not None and (inputs.keys() != set(wanted) or not tokens)
    if not inputs or wrong or (TASKS[task].alone and (len(inputs) > 1 or not tokens)):
        raise UserError(f"the inputs do not fit the task {task}: {', '.join(inputs)}", place=place, hint=COPY)


def _read_special(document: Document, size: int) -> SpecialTokens:
    """Read the special tokens of a vocabulary of this size."""
    pad, unknown, begin = (document.optional_integer(name, 0, size - 1) for name in ("pad", "unknown", "begin"))
    ends = document.ids("end", MAX_ENDS, size)
    if pad in ends:
        raise UserError(f"{document.path}end has the id of padding, {pad}", place=document.place, hint=COPY)
    return SpecialTokens(pad, unknown, begin, ends, document.boolean("ends"))


def _read_search(document: Document) -> SearchOptions:
    width = document.integer("beam_size", 1)
    document.integer("n_best", 1, width)
    found = {
        option.name: _read_option(document, option)
        for option in OPTIONS[1:]
        if option.absent is None or option.name in document.fields
    }
    return SearchOptions(width, **found)


def _read_option(document: Document, option: SearchOption) -> Any:
    if option.several:
        return document.ids(option.name, MAX_SUPPRESSED, MAX_SIZE, least=0)
    if option.words:
        return document.text(option.name, tuple(option.words))
    if option.dtype == "int64":
        return document.integer(option.name, int(option.low), MAX_SIZE if option.high is None else int(option.high))
    return document.number(option.name, option.low, cast(float, option.high))


def _read_sampling(document: Document) -> SampleOptions:
    return SampleOptions(
        temperature=document.number("temperature", 0, 100),
        top_k=document.integer("top_k", 0),
        top_p=document.number("top_p", 0, 1),
        max_new_tokens=document.integer("max_new_tokens", 1),
        **{option.name: _read_option(document, option) for option in EDITS if option.name in document.fields},
    )


_DEFAULTS: Mapping[str, DefaultsReader] = {"search": _read_search, "sample": _read_sampling}
"""The readers of the defaults, by how the engine computes; a forward pass has none."""


def _read_precision(document: Document) -> Precision:
    return cast(Precision, document.text("precision", tuple(dict.fromkeys(WORDS.values()))))


def _read_files(document: Document) -> dict[str, FileRecord]:
    files: dict[str, FileRecord] = {}
    for name in document.fields:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable():
            raise UserError(f"{json.dumps(name)} is not a path inside the engine", place=document.place, hint=COPY)
        record = document.section(name)
        files[name] = FileRecord(record.integer("bytes", 0, FILE_BYTES), record.text("sha256"))
    return files


def _read_calibration(document: Document) -> Calibration:
    return Calibration(document.text("rule"), document.integer("examples", 1))


def _read_refused(document: Document) -> dict[str, str]:
    return {name: document.text(name) for name in document.fields}


def _read_plans(document: Document) -> dict[str, Plan]:
    return {name: read_plan(document.section(name)) for name in document.fields}


_BUILD = "an engine is a folder written by `xformc build RUN -o ENGINE`"
