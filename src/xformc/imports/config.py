"""Reads config.json, and makes of it the spec that a family's table says; what no table knows is refused by name."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from xformc.compiler.spec.expressions import ExpressionError, parse_expression
from xformc.compiler.spec.problems import SpecError, listed
from xformc.compiler.spec.tree import Plain, Scalar, Tree
from xformc.errors import UserError
from xformc.imports.characters import read_characters
from xformc.imports.family import Family, cases_of
from xformc.imports.images import read_images
from xformc.imports.json_file import read_json
from xformc.imports.sentences import read_modules
from xformc.imports.sounds import read_sounds

CONFIG, GENERATION = "config.json", "generation_config.json"
MAX_BYTES = 1 << 20
OTHERWISE, NULL = "otherwise", "null"
LABELS_BY_ID = "id2label."
ARCHITECTURE = "architectures.0"
WRITES_CHARACTERS = "ForCTC"
"""The end of the architectures whose vocabulary is one of characters."""

_INERT = """model_type architectures auto_map _name_or_path transformers_version torch_dtype dtype bos_token_id
eos_token_id pad_token_id sep_token_id decoder_start_token_id
id2label label2id output_attentions output_hidden_states return_dict use_cache use_return_dict
problem_type chunk_size_feed_forward task_specific_params finetuning_task torchscript tokenizer_class initializer_range
gradient_checkpointing num_labels _num_labels max_length max_new_tokens min_length min_new_tokens do_sample
num_beams top_k top_p temperature length_penalty
early_stopping no_repeat_ngram_size forced_bos_token_id forced_eos_token_id bad_words_ids suppress_tokens
begin_suppress_tokens repetition_penalty output_past save_step prefix force_bos_token_to_be_generated"""
IGNORED = frozenset(_INERT.split())
"""Keys of every config that do not change the logits."""

PARTS = frozenset({"text_config", "vision_config", "audio_config", "encoder", "decoder"})
"""Keys that hold the config of a model which is a part of this one."""

COMPUTED = "computed."
"""The beginning of keys that a table computes of others, by a default; no config has them."""

WRITTEN_WITH = frozenset(
    """bos_token_id eos_token_id pad_token_id decoder_start_token_id num_beams length_penalty early_stopping
max_length max_new_tokens min_length min_new_tokens no_repeat_ngram_size forced_bos_token_id forced_decoder_ids
repetition_penalty suppress_tokens begin_suppress_tokens lang_to_id task_to_id no_timestamps_token_id
max_initial_timestamp_index bad_words_ids""".split()  # noqa: SIM905 (a list of words)
)
"""The keys of a generation_config.json that replace those of the config."""

UNREAD: Mapping[str, tuple[Scalar, ...]] = {
    "diversity_penalty": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "min_p": (0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "renormalize_logits": (False,),
    "sequence_bias": (),
    "stop_strings": (),
    "typical_p": (1,),
}
"""The keys of a generation_config.json that change what transformers writes and are not imported, with the values that
change nothing."""

_OF_OTHERS = """num_return_sequences output_scores remove_invalid_values return_dict_in_generate tf_legacy_loss
tie_encoder_decoder use_bfloat16"""
INERT_IN_PARTS = frozenset((*IGNORED, *UNREAD, *_OF_OTHERS.split()))
"""Keys of the config of a part that do not change the logits: what it says of searches is said of the whole, too."""

KEY = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)")


@dataclass
class Config:
    """The values of a config.json by key (`rope_parameters.rope_type` for nested ones), and which of them were used.

    `within`: the keys whose defaults are being computed.
    """

    values: Mapping[str, Scalar]
    family: Family
    used: set[str] = field(default_factory=set[str])
    within: tuple[str, ...] = ()

    def value(self, key: str) -> Scalar:
        """The value of a key, or the family's default. Raises: UserError if the config has neither."""
        self.used.add(key)
        value, default = self.values.get(key), self.family.defaults.get(key)
        if value is not None or default is None:
            return value
        if key in self.within:
            raise SpecError.at(default.span, f"the default of {key} depends on itself")
        inner = replace(self, within=(*self.within, key))
        return cast(Scalar, inner.filled(default))

    def filled(self, tree: Tree) -> Plain:
        """The plain value of a tree, in which each text with a $key became a number, or a list if it is nothing else.

        Raises: SpecError for a text that has no value; UserError for a key that the config lacks.
        """
        if isinstance(tree.value, dict):
            return {key: self.filled(entry.tree) for key, entry in tree.value.items()}
        if isinstance(tree.value, tuple):
            return [self.filled(item) for item in tree.value]
        return self._number(tree) if "$" in tree.word else tree.value

    def _number(self, tree: Tree) -> Plain:
        names = KEY.findall(tree.word)
        listed = [key for key in self.values if names and key.rpartition(".")[0] == names[0]]
        if listed and tree.word == f"${names[0]}":
            self.used.add(names[0])
            return [self._numeric(key) for key in listed]
        numbers = {f"k{index}": self._numeric(name) for index, name in enumerate(names)}
        if len(names) == 1 and tree.word == f"${names[0]}":
            return numbers["k0"]
        places = iter(numbers)
        text = KEY.sub(lambda _: next(places), tree.word)
        try:
            return parse_expression(text).value(lambda name, _: numbers[name])
        except KeyError as error:
            raise SpecError.at(tree.span, f"{error} is not a number; write $ before a key of the config") from None
        except ExpressionError as error:
            raise SpecError.at(tree.span, f"'{tree.word[:60]}' has no value: {error.message}") from None

    def _numeric(self, key: str) -> bool | int | float:
        value = self.value(key)
        if isinstance(value, int | float) and math.isfinite(value):
            return value
        raise UserError(f"{key} must be a number, found {json.dumps(value)[:60]}")


def read_config(folder: Path) -> dict[str, Scalar]:
    """The values of a folder's config.json, nested keys joined by dots. Raises: UserError if it is not readable."""
    path = folder / CONFIG
    if not path.is_file():
        hint = "give a folder with config.json and model.safetensors, as Hugging Face's save_pretrained writes it"
        raise UserError(f"has no {CONFIG}" if folder.is_dir() else "no such folder", place=str(folder), hint=hint)
    flat = read_json(path, MAX_BYTES, "a config", flat_values)
    if not isinstance(flat.get("model_type"), str):
        raise UserError("names no model_type", place=str(path))
    named = sum(key.startswith(LABELS_BY_ID) for key in flat)
    flat |= {"num_labels": named} if named else {}
    if flat.get("force_bos_token_to_be_generated") is True and not (folder / GENERATION).is_file():
        flat.setdefault("forced_bos_token_id", flat.get("bos_token_id"))
    beside = read_modules(folder) | read_images(folder) | read_sounds(folder, str(flat["model_type"]))
    characters = read_characters(folder) if str(flat.get(ARCHITECTURE)).endswith(WRITES_CHARACTERS) else None
    return _with_generation(folder / GENERATION, flat) | beside | (characters.values() if characters else {})


def unread_options(folder: Path) -> list[str]:
    """The options of a folder's generation_config.json that change what its origin writes, and are not imported."""
    path = folder / GENERATION
    flat = read_json(path, MAX_BYTES, "a config", flat_values) if path.is_file() else {}
    given = {key.partition(".")[0] for key, value in flat.items() if value not in (None, *UNREAD.get(key, ()))}
    return sorted(given & UNREAD.keys())


def label_names(values: Mapping[str, Scalar], count: int, place: str) -> list[str]:
    """The names of the labels by id, `LABEL_0` and so on if the config has none. Raises: UserError for wrong ones."""
    if not any(key.startswith(LABELS_BY_ID) for key in values):
        return [f"LABEL_{index}" for index in range(count)]
    found = [values.get(f"{LABELS_BY_ID}{index}") for index in range(count)]
    names = [name for name in found if isinstance(name, str) and name.strip() == name and name.isprintable() and name]
    if len(names) < count or len(set(names)) < count:
        raise UserError("id2label must name each id from 0 once, and no two alike", place=place)
    return names


def _with_generation(path: Path, values: dict[str, Scalar]) -> dict[str, Scalar]:
    """The values with those of a generation_config.json, which say how the origin writes."""
    if not path.is_file():
        return values
    flat = read_json(path, MAX_BYTES, "a config", flat_values)
    said = {key: value for key, value in flat.items() if key.partition(".")[0] in WRITTEN_WITH and value is not None}
    new = said.get("max_new_tokens")
    if isinstance(new, int):  # wins over max_length, which counts the token before the first one as well
        said["max_length"] = new + 1
    over = {key.partition(".")[0] for key in said}
    return {key: value for key, value in values.items() if key.partition(".")[0] not in over} | said


def resolve(family: Family, values: Mapping[str, Scalar], place: str) -> tuple[Family, Config]:
    """Choose the cases of a config. Raises: UserError that names everything that the family does not support."""
    renamed, problems = _renamed(family, values)
    config = Config(renamed, family)
    kinds = [str(value) for key, value in values.items() if key.startswith("architectures.")]
    problems += [
        f"architectures: {kind} must be {listed(family.architectures)}"
        for kind in kinds
        if family.architectures and kind not in family.architectures
    ]
    chosen = family
    cases = _cases(family.cases, renamed)
    for key, parts in cases:  # which grow by those of the parts that are chosen
        value = None if key in values and values[key] is None and NULL in parts else config.value(key)
        text = value if isinstance(value, str) else json.dumps(value)
        part = parts.get(text, parts.get(OTHERWISE))
        if part is None:
            problems.append(f"{key}: {text[:60]} must be {listed(parts)}")
        else:
            chosen = chosen.with_part(part)
            cases += _cases(cases_of(part), renamed)
    problems += _out_of_series(chosen, config)
    config.family = chosen
    problems += _unset(chosen, config)
    problems += [
        f"{key}: {json.dumps(value)[:60]} is not in the table of {family.name}"
        for key, value in renamed.items()
        if key not in config.used and not _is_ignored(key, chosen.ignored)
    ]
    if problems:
        hint = "a table of your own, given with --map, may say what a key means or that it is ignored"
        raise UserError(
            "the family's table does not support this config:" + "".join(f"\n  {line}" for line in problems),
            place=place,
            hint=hint,
        )
    return chosen, config


def _cases(
    cases: Mapping[str, Mapping[str, Tree]], values: Mapping[str, Scalar]
) -> list[tuple[str, Mapping[str, Tree]]]:
    """The cases of each key; `*` at the end of a key is any item of a list."""
    found: list[tuple[str, Mapping[str, Tree]]] = []
    for name, parts in cases.items():
        items = [key for key in values if key.rpartition(".")[0] == name[:-2]]
        found += [(key, parts) for key in (items if name.endswith(".*") else [name])]
    return found


def _out_of_series(family: Family, config: Config) -> list[str]:
    """A line for each list whose items do not follow each other as the table says; such a list may be absent."""
    problems: list[str] = []
    for name, words in family.series.items():
        items = [config.value(key) for key in config.values if key.rpartition(".")[0] == name]
        texts = [item if isinstance(item, str) else json.dumps(item) for item in items]
        wrong = [index for index, text in enumerate(texts) if text != words[index % len(words)]]
        if wrong:
            problems.append(
                f"{name}: item {wrong[0]} must be {words[wrong[0] % len(words)]}, in turn {', '.join(words)}"
            )
    return problems


def _renamed(family: Family, values: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], list[str]]:
    """The values under the table's names of their keys, and a line for each key that has two values."""
    found: dict[str, Scalar] = {}
    said: dict[str, str] = {}
    problems: list[str] = []
    for key, value in _joined(family, values).items():
        name = family.renamed.get(key, key)
        if value is None:
            continue
        first = said.setdefault(name, key)
        if found.setdefault(name, value) != value:
            problems.append(f"{key}: {json.dumps(value)[:60]} differs from {first if key == name else name}")
    return found, problems


def _joined(family: Family, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values, with the lists that the table joins as one text each."""
    found = dict(values)
    for key, between in family.joined.items():
        items = [name for name in values if name.rpartition(".")[0] == key and name.rpartition(".")[2].isdecimal()]
        if items:
            found[key] = between.join(str(found.pop(name)) for name in items)
    return found


def _unset(family: Family, config: Config) -> list[str]:
    """A line for each key that the table needs as a number and the config lacks."""
    lines: dict[str, None] = {}
    for tree in (family.spec, *family.weights.values()):
        for word in tree.words():
            for key in KEY.findall(word):
                try:
                    config.filled(Tree(f"${key}", tree.span))
                except SpecError:
                    raise
                except UserError as error:
                    lines[error.message] = None
    return list(lines)


def _is_ignored(key: str, ignored: tuple[str, ...]) -> bool:
    top, _, inner = key.partition(".")
    inert = inner.partition(".")[0] in INERT_IN_PARTS if top in PARTS else top in IGNORED
    return inert or key in ignored or top in ignored


def flat_values(content: object, prefix: str = "") -> dict[str, Scalar]:
    """Nested mappings and lists as one mapping, keys joined by dots; an empty one is no value."""
    if isinstance(content, list):
        return flat_values({str(index): one for index, one in enumerate(cast(list[object], content))}, prefix)
    if isinstance(content, dict):
        return {
            name: value
            for key, inner in cast(Mapping[str, object], content).items()
            for name, value in flat_values(inner, f"{prefix}.{key}" if prefix else key).items()
        }
    return {prefix: cast(Scalar, content)}
