"""Exports a model as a folder that transformers loads: config.json, safetensors and the tokenizer's files."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xformc.compiler.spec import Spec
from xformc.compiler.spec.tree import Plain, Scalar
from xformc.errors import UserError
from xformc.exports.card import CARD, Card, checked_licence
from xformc.exports.compare import as_lines, differences
from xformc.exports.observe import observed, special_of
from xformc.exports.rotary import with_halves
from xformc.exports.solve import solve, unsaid
from xformc.exports.source import Source, read_source, spec_of
from xformc.exports.tensors import Format, foreign_tensors, rounded
from xformc.exports.tokenizers import SETTINGS, write_tokenizer
from xformc.files import atomic_directory
from xformc.imports.banned import said_of
from xformc.imports.characters import CTC
from xformc.imports.checkpoint import SINGLE
from xformc.imports.config import COMPUTED, CONFIG, GENERATION, WRITTEN_WITH, Config, resolve
from xformc.imports.family import Family, find_family, load_family, shipped_families
from xformc.imports.images import IMAGES, preprocessor_of
from xformc.imports.import_model import SEVERAL
from xformc.imports.replay import Replay, replay
from xformc.imports.sentences import PREFIX, modules_of
from xformc.imports.sounds import SOUND, extractor_of
from xformc.imports.weights import label_order
from xformc.trainer.run import check_free
from xformc.trainer.tensors import write_tensors

WRITTEN = ("no_repeat_ngram_size", "repetition_penalty", "suppress_tokens", "suppress_first", "min_length")
"""The settings that generation_config.json has."""

BESIDE = (PREFIX, IMAGES, SOUND, CTC, COMPUTED)
"""The beginnings of keys that do not stand in config.json: they are in other files, or follow from other keys."""

STAND_IN = 1
"""A number for keys that a model does not say, with which the rest of a family's spec is compared."""


@dataclass(frozen=True)
class Export:
    """What was exported: the family, the number of stored numbers, the tokenizer's files, what was left out, and the
    comparison with transformers.
    """

    family: str
    parameters: int
    files: tuple[str, ...]
    notes: tuple[str, ...]
    replay: Replay | None


@dataclass(frozen=True)
class Match:
    """A family's table with the config that gives a spec, and that spec by the table.

    source: the model, with its rotary pairs as the family has them.
    """

    source: Source
    family: Family
    config: Config
    values: Mapping[str, Scalar]
    spec: Spec


def export_hugging_face(
    path: Path,
    out: Path,
    *,
    family: str | None = None,
    table: Path | None = None,
    precision: Format = "float32",
    compare: bool = False,
    licence: str | None = None,
) -> Export:
    """Write the folder `out` from a run, a checkpoint or an engine.

    The family is `family`, that of the table in `table`, that of an imported run, or the one that fits. With `compare`,
    transformers runs the folder beside the model.

    Raises: UserError that names whatever the family cannot say, or if the logits differ by more than the bound; then
    nothing is written.
    """
    checked_licence(licence)
    check_free(out)
    source = read_source(path)
    match = find_match(source, family, table)
    tensors = foreign_tensors(match.family, match.config, match.source.spec.graph(), match.source.arrays)
    stored = rounded(tensors, precision)
    with atomic_directory(out, replace=False) as part:
        config, generation = _configs(match, source, precision)
        _write_json(part / CONFIG, config)
        sizes = source.spec.sizes
        beside = modules_of(match.values, int(sizes.get("d_model", 0)))
        beside |= preprocessor_of(match.values, int(sizes.get("height", 0))) | extractor_of(match.values)
        for name, content in beside.items():
            (part / name).parent.mkdir(exist_ok=True)
            _write_json(part / name, content)
        if generation:
            _write_json(part / GENERATION, generation)
        write_tensors(part / SINGLE, stored, {"format": "pt"})
        files, notes = write_tokenizer(source, part, match.family.name)
        compared = _replayed(part, source, match, precision) if compare else None
        card = _card(source, match, sum(tensor.numel() for tensor in stored.values()), licence, compared)
        (part / CARD).write_text(card, encoding="utf-8")
    said = (*notes, *_search_notes(source.spec, match.spec, tokenized=SETTINGS in files))
    return Export(match.family.name, sum(tensor.numel() for tensor in stored.values()), files, said, compared)


def _card(source: Source, match: Match, count: int, licence: str | None, compared: Replay | None) -> str:
    """The model card: what the model is, and how it compares with the one that it was made of."""
    spec = source.spec
    facts = {
        "family": match.family.name,
        "inputs": ", ".join(f"{name} ({item.kind})" for name, item in spec.inputs.items()),
        "results": ", ".join(f"{one.name} ({one.kind})" for one in spec.results) or spec.task,
        "parameters": f"{count:,}",
        "sizes": ", ".join(f"{name} {size:g}" for name, size in spec.sizes.items()),
    }
    checks = () if compared is None else (f"transformers beside xformc: {compared.line()}",)
    return Card(spec.name, "transformers", licence, spec.task, facts, checks, (match.family.name,)).text()


def _replayed(folder: Path, source: Source, match: Match, precision: Format) -> Replay:
    """The comparison of transformers with the model, whose weights are rounded as in the folder. Raises: UserError if
    the logits differ."""
    arrays = {path: tensor.float().numpy() for path, tensor in rounded(source.arrays, precision).items()}
    order = label_order(match.family, match.config, {path: array.shape for path, array in source.arrays.items()})
    found = replay(folder, source.spec, arrays, order)
    if not found.passed:
        raise UserError(f"transformers does not compute this model's logits: {found.line()}", place=str(source.folder))
    return found


def find_match(source: Source, family: str | None, table: Path | None) -> Match:
    """The family of a model with its config; of several, one whose table is like no other.

    Raises: UserError that names what differs, or that none fits.
    """
    halved = with_halves(source)
    forms = [source] if halved is None else [source, halved]
    if table is not None:
        return _matched(load_family(table), forms)
    name = family or (source.family if source.family in shipped_families() else None)
    if name is not None:
        return _matched(find_family(name), forms)
    for found in sorted(map(find_family, shipped_families()), key=lambda one: one.like is not None):
        with suppress(UserError):
            return _matched(found, forms)
    hint = "`--family NAME` says what differs from one of them"
    raise UserError(
        f"no family computes what this model does; there are {', '.join(shipped_families())}",
        place=str(source.folder),
        hint=hint,
    )


def _matched(family: Family, forms: Sequence[Source]) -> Match:
    """The first of the forms of a model that a family can say.

    Raises: UserError that names what differs in the nearest one.
    """
    errors: list[UserError] = []
    for form in forms:
        try:
            return _match(family, form)
        except UserError as error:
            errors.append(error)
    raise min(errors, key=lambda error: error.message.count("\n"))


def _match(family: Family, source: Source) -> Match:
    """The config of a family that gives the model. Raises: UserError that names what differs."""
    solution, place = solve(family, source.spec), str(source.folder)
    values, without = {"model_type": family.name, **solution.values}, unsaid(solution)
    lines = [f"{path}: {_said(source.spec, path)} here, needed by {family.name}" for path in without]
    assumed = dict.fromkeys((key for keys in without.values() for key in keys), STAND_IN)
    try:
        chosen, config = resolve(family, {**values, **assumed}, place)
        spec = spec_of(config.filled(chosen.spec))
    except UserError as error:
        if not lines:
            raise UserError(f"cannot be said as {family.name}: {error.message}", place=place) from error
    else:
        found = differences(source.spec, spec, family.name)
        apart = (*without, "sizes.") if without else ()  # sizes may follow from the numbers that are assumed
        lines += [line for line in found if not line.startswith(apart)]
        if not found:
            return Match(source, chosen, config, {**values, **assumed}, spec)
    raise UserError(f"cannot be said as {family.name}, which differs in:{as_lines(lines)}", place=place)


def _said(spec: Spec, path: str) -> str:
    """What the spec says at a path with dots."""
    return "absent" if observed(spec, tuple(path.split("."))) is None else "another value"


def _configs(match: Match, source: Source, precision: Format) -> tuple[dict[str, Plain], dict[str, Plain]]:
    """The contents of config.json and generation_config.json."""
    family, values = match.family, {**match.values, **_special_ids(source.spec)}
    if values.get("pad_token_id", 0) is None and "pad_token_id" in family.defaults:  # where a family cannot be without
        values["pad_token_id"] = match.config.value("pad_token_id")
    for alias, key in family.renamed.items():
        if "." not in alias and key in values:
            values.setdefault(alias, values[key])
    for key in sorted(match.config.used):
        if any(one.startswith(f"{key}.") for one in values):  # a list, such as several end tokens
            continue
        usual = match.config.value(key)
        if usual is not None or "null" in family.cases.get(key, {}):
            values.setdefault(key, usual)
    head: dict[str, Plain] = {"architectures": [*family.architectures[:1]], "dtype": precision}
    if values.pop("num_labels", None) is not None:
        names = next(iter(source.labels.values()))
        head["id2label"] = {str(index): name for index, name in enumerate(names)}
        head["label2id"] = {name: index for index, name in enumerate(names)}
        if source.spec.results[0].settings.get("several"):
            head["problem_type"] = SEVERAL
    how: dict[str, Scalar] = {}
    if source.spec.written is not None:
        how = {key: value for key, value in values.items() if key.partition(".")[0] in WRITTEN_WITH}
        how |= said_of(source.spec)
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    kept = {key: value for key, value in values.items() if key not in how or key.partition(".")[0] in ids}
    kept = {key: value for key, value in kept.items() if not key.startswith(BESIDE)}
    kept = {key: value for key, value in kept.items() if value is not None or "." not in key or key in family.defaults}
    return {**head, **_nested(kept)}, _nested(how)


def _special_ids(spec: Spec) -> dict[str, Scalar]:
    """The special tokens under the names of a config."""
    special = special_of(spec)
    if special is None:
        return {}
    ends: dict[str, Scalar] = {f"eos_token_id.{index}": one for index, one in enumerate(special.end)}
    ids: dict[str, Scalar] = {"eos_token_id": special.end[0]} if len(special.end) == 1 else ends
    ids["pad_token_id"] = special.pad
    if len(spec.inputs) == 1:
        return {**ids, "bos_token_id": special.begin}
    begun = {"forced_bos_token_id": spec.decode.prefix[0]} if len(spec.decode.prefix) == 1 else {}
    rest: dict[str, Scalar] = {
        "bos_token_id": None,
        "decoder_start_token_id": special.begin,
        "forced_eos_token_id": None,
    }
    return {**ids, **rest, **begun}


def _nested(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """Keys with dots as mappings, or as lists where they are numbers."""
    groups: dict[str, dict[str, Scalar]] = {}
    for key, value in values.items():
        top, _, rest = key.partition(".")
        groups.setdefault(top, {})[rest] = value
    return {top: _group(inner) for top, inner in groups.items()}


def _group(inner: Mapping[str, Scalar]) -> Plain:
    """The values below a key: itself, a list or a mapping."""
    if "" in inner:
        return inner[""]
    groups = _nested(inner)
    return [groups[key] for key in sorted(groups, key=int)] if all(key.isdecimal() for key in groups) else groups


def _search_notes(ours: Spec, theirs: Spec, *, tokenized: bool) -> list[str]:
    """What differs in how texts are begun and searched for, which the logits do not show."""
    notes: list[str] = []
    if ours.written is None:
        return notes
    one, other = ours.inputs[ours.written].special, theirs.inputs[theirs.written or ours.written].special
    if one.begun != other.begun and not tokenized:
        notes.append(f"texts begin with token {one.begin} here, which the family does not add")
    mine, its = ours.decode.model_dump(), theirs.decode.model_dump()
    said = ("preset", "sample", "n_best", *(("prefix",) if len(ours.decode.prefix) == 1 else ()))
    keys = [key for key in mine if key not in (*said, *WRITTEN) and mine[key] != its[key]]
    if keys and ours.task != "language_model":
        notes.append(f"the search there has another {', '.join(keys)}")
    drawn, usual = ours.decode.sample.model_dump(), theirs.decode.sample.model_dump()
    keys = [key for key in drawn if key not in (*WRITTEN, "max_new_tokens") and drawn[key] != usual[key]]
    if keys and ours.task == "language_model":
        notes.append(f"sampling there has another {', '.join(keys)}")
    return notes


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
