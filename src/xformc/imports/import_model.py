"""Imports a model of another library as a run: a short spec, and its weights."""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from xformc import __version__
from xformc.compiler.shortlist import write_shortlist
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.compiler.spec.special_tokens import NONE
from xformc.compiler.spec.tree import Plain, Scalar, write_yaml
from xformc.compiler.weight_files import graph_shapes
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.names import IMPORTED, SHORTLIST, SPEC, WEIGHTS
from xformc.imports.banned import banned, banned_at_first, forced, shortest, spoken
from xformc.imports.config import CONFIG, label_names, resolve
from xformc.imports.origin import Origin
from xformc.imports.origins import READERS
from xformc.imports.replay import Replay, replay
from xformc.imports.replay_texts import TextReplay, replay_texts
from xformc.imports.tokenizers import ForeignTokenizer, open_tokenizers
from xformc.imports.weights import label_order, map_weights, unlike_copies
from xformc.trainer.data.label_names import save_labels
from xformc.trainer.run import check_free
from xformc.trainer.tensors import write_tensors

TIED = "tie_word_embeddings"

SEVERAL, NUMBERS = "multi_label_classification", "regression"
"""What a config calls labels of which several may be right, and numbers."""

TOKENS = "tokens"
"""The result of a table whose labels are the vocabulary."""


@dataclass(frozen=True)
class Import:
    """What was imported: the family, the number of parameters, the tokenizer, and the comparisons with the origin.

    texts: whether the model has an input of tokens. shortlist: whether it has a shortlist. unread: as of its origin.
    """

    family: str
    parameters: int
    tokenizer: ForeignTokenizer | None
    replay: Replay | None
    texts: bool
    shortlist: bool
    tokens: TextReplay | None
    unread: Sequence[str] = ()


def import_model(source: Path, out: Path, table: Path | None = None, *, compare: bool = False) -> Import:
    """Write the run `out` from a folder or a file of another library, by the family's table or that in `table`.

    With `compare`, transformers runs the origin beside the spec, and cuts texts. Raises: UserError for whatever does
    not fit, or if the logits differ by more than the bound; then nothing is written.
    """
    check_free(out)
    origin = _read(source, table)
    if compare and not origin.replayed:
        raise UserError("--replay runs models of transformers only", place=str(source))
    place, values, tokenizer = origin.place, origin.values, origin.tokenizer
    family, config = resolve(origin.family, values, place)
    tensors = origin.tensors(family.prefix)
    unlike = unlike_copies(family, config, tensors)
    tied = next((key for key, parts in family.cases.items() if key.endswith(TIED) and "false" in parts), None)
    if unlike and tied is not None:  # what holds other numbers is not tied, as in transformers 5
        family, config = resolve(origin.family, {**values, tied: False}, place)
        unlike = [name for name in unlike if name in family.copies]
    filled = config.filled(family.spec)
    assert isinstance(filled, dict)
    _predicting(filled, values)
    special = filled.get("special_tokens")
    if tokenizer is not None and isinstance(special, dict):
        special |= tokenizer.special(values)
        if special.get("pad") == NONE and tokenizer.pad is not None:
            special["pad"] = tokenizer.pad
        if origin.templated and _continues(filled.get("decode")):
            first = tokenizer.first()
            special["begin"] = NONE if first is None else first
    begins = _begins(filled)
    if tokenizer is not None and begins:
        tokenizer = tokenizer.in_parts(begins)
    text = write_yaml({"name": _name(source), **_with_settings(filled, config.values)})
    spec = _checked(text, place)
    shapes = graph_shapes(spec.graph())
    arrays = map_weights(family, config, shapes, tensors, str(source), unlike)
    labels = _labels(spec, values, tokenizer, place)
    compared = replay(source, spec, arrays, label_order(family, config, shapes)) if compare else None
    if compared is not None and not compared.passed:
        raise UserError(f"the import does not compute the origin's logits: {compared.line()}", place=str(source))
    record = {"xformc": __version__, "family": family.name, "replay": None if compared is None else {**vars(compared)}}
    with atomic_directory(out, replace=False) as part:
        (part / SPEC).write_text(text, encoding="utf-8")
        if tokenizer is not None:
            tokenizer.write(part)
        save_labels(labels, part)
        write_tensors(part / WEIGHTS, {path: torch.as_tensor(array) for path, array in arrays.items()}, {})
        (part / IMPORTED).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        if origin.shortlist is not None:
            write_shortlist(origin.shortlist, part / SHORTLIST)
        vocabularies = open_tokenizers(part, spec)
    texts = any(item.kind == "tokens" for item in spec.inputs.values())
    count, listed = sum(array.size for array in arrays.values()), origin.shortlist is not None
    tokens = replay_texts(source, vocabularies) if compare and vocabularies else None
    return Import(family.name, count, tokenizer, compared, texts, listed, tokens, origin.unread)


def _read(source: Path, table: Path | None) -> Origin:
    """The model of the library that wrote `source`. Raises: UserError if none of the known ones did."""
    for reader in READERS:
        if reader.reads(source):
            return reader.read(source, table)
    if not source.exists():
        raise UserError("no such file or folder", place=str(source))
    hint = "give a folder with config.json and model.safetensors, as Hugging Face's save_pretrained writes it"
    raise UserError(
        f"has no {CONFIG}, and is no model of fairseq, OpenNMT-py, Marian or CTranslate2", place=str(source), hint=hint
    )


def _labels(
    spec: Spec, values: Mapping[str, Scalar], tokenizer: ForeignTokenizer | None, place: str
) -> dict[str, list[str]]:
    """The names of the labels of each result that has them; those of tokens are the tokenizer's."""
    named: dict[str, list[str]] = {}
    for result in spec.results:
        if result.kind == "labels":
            width = spec.graph().outputs[0].type.axes[-1].size or 0
            item = next(iter(spec.inputs.values()))
            words = result.name == TOKENS and item.kind == "tokens" and width == item.vocabulary
            named[result.name] = _pieces(tokenizer, width) if words else label_names(values, width, place)
    return named


def _pieces(tokenizer: ForeignTokenizer | None, count: int) -> list[str]:
    """The names of tokens as labels: distinct, and each a line."""
    pieces = {} if tokenizer is None else tokenizer.pieces()
    known = [pieces.get(index, "") for index in range(count)]
    return [name if name.isprintable() and name.strip() == name and name else f"<{i}>" for i, name in enumerate(known)]


def _with_settings(spec: dict[str, Plain], values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The spec with what a config says of tokens: in its search if its table sets the beam, else in its sampling, and
    in the search of a language model, whose table sets a preset."""
    bans, decode = banned(values), spec.get("decode", {})
    assert isinstance(decode, dict)
    if "beam_size" in decode:
        more = {**bans, **shortest(values), **banned_at_first(values), **forced(values)}
        speech = decode.get("speech")
        if isinstance(speech, dict):
            more["speech"] = {**speech, **spoken(values)}
        return {**spec, "decode": {**decode, **more}} if more else spec
    sample, searched, limit = decode.get("sample", {}), bans if _continues(decode) else {}, values.get("max_new_tokens")
    assert isinstance(sample, dict)
    drawn = {**bans, "max_new_tokens": limit} if _continues(decode) and isinstance(limit, int) else bans
    return {**spec, "decode": {**decode, **searched, "sample": {**sample, **drawn}}} if drawn else spec


def _predicting(filled: dict[str, Plain], values: Mapping[str, Scalar]) -> None:
    """What the labels of examples are by the config: one, several at once, or numbers."""
    results, kind = filled.get("results", {}), values.get("problem_type")
    assert isinstance(results, dict)
    for name, entry in results.items():
        if not isinstance(entry, dict) or "labels" not in entry or "each" in entry:
            continue
        if kind == SEVERAL:
            entry["several"] = True
        elif kind == NUMBERS:
            results[name] = {"numbers": entry["labels"]}


def _continues(decode: object) -> bool:
    """Whether these settings of a table are a language model's: a preset, but no beam."""
    return isinstance(decode, dict) and "preset" in decode and "beam_size" not in decode


def _begins(filled: dict[str, Plain]) -> dict[str, bool]:
    """Of a table whose prompts are in parts, whether a prompt begins with this input of tokens; else none.

    A part has no end and special tokens of its own.
    """
    inputs = filled.get("inputs", {})
    assert isinstance(inputs, dict)
    own = {name: item for name, item in inputs.items() if isinstance(item, dict) and "special_tokens" in item}
    parts = {name: item["special_tokens"] for name, item in own.items() if item.get("ends") is False}
    first = {name for name, special in parts.items() if isinstance(special, dict) and special.get("begin") != NONE}
    return {name: name in first for name in own} if parts else {}


def _name(source: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", source.resolve().name)[:64] or "imported"


def _checked(text: str, place: str) -> Spec:
    """The spec of the text. Raises: UserError that shows what is wrong with the config that led to it."""
    with tempfile.TemporaryDirectory(prefix="xformc-import-") as name:
        path = Path(name) / SPEC
        path.write_text(text, encoding="utf-8")
        try:
            spec = load_spec(path)
            spec.graph()
        except SpecError as error:
            lines = "".join(f"\n  {problem.message}" for problem in error.problems[:8])
            raise UserError(f"asks for a model that cannot be:{lines}", place=place) from None
    return spec
