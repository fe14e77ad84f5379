"""engine.json: what an engine is, what it needs, and the size and hash of each of its files."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xformc.errors import UserError
from xformc.format.abilities import Ability
from xformc.format.inputs import Input
from xformc.format.interfaces import given_inputs
from xformc.format.plans import Plan
from xformc.format.precision import Caches, Precision
from xformc.format.results import Result
from xformc.format.search_options import OPTIONS, SearchOption, Setting
from xformc.format.speech import Speech
from xformc.format.targets import Target
from xformc.format.tasks import TASKS, Decoding

FORMAT = 1
"""The version of engine.json, which is read by the xformc that writes it."""
MANIFEST_BYTES = 1 << 20
FILE_BYTES = 1 << 40
TOKENIZER_BYTES = 1 << 28


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search, complete and checked; see `options.SearchArguments` for the fields.

    Options with the default None are None for engines without this input: those of fixed shapes.
    """

    beam_size: int
    n_best: int
    length_penalty: float
    max_length_factor: float
    max_length_offset: int
    min_length: int | None = None
    length_penalty_kind: str | None = None
    stop_rule: str | None = None
    patience: float | None = None
    suppress_tokens: tuple[int, ...] | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    prefix_bias: float | None = None
    beam_groups: int | None = None
    diversity_penalty: float | None = None
    coverage_penalty: float | None = None


@dataclass(frozen=True)
class SampleOptions:
    """Options of sampling, complete and checked; see `sampling.SampleArguments` for the fields.

    Options with the default None are None for engines without this input, as for `SearchOptions`.
    """

    temperature: float
    top_k: int
    top_p: float
    max_new_tokens: int
    suppress_tokens: tuple[int, ...] | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


def recorded(options: SearchOptions | SampleOptions) -> dict[str, Setting]:
    """The options as engine.json has them: those that the engine lacks are left out."""
    return {name: value for name, value in asdict(options).items() if value is not None}


def numbers(options: SearchOptions | SampleOptions) -> dict[str, int | float | tuple[int, ...]]:
    """The options as the model's inputs have them, an int for int64: the numbers of words, without what it lacks."""
    if isinstance(options, SampleOptions):
        return {name: value for name, value in asdict(options).items() if value is not None}
    given = ((option, getattr(options, option.name)) for option in OPTIONS)
    return {option.name: _number(option, value) for option, value in given if value is not None}


def _number(option: SearchOption, value: Any) -> int | float | tuple[int, ...]:
    if option.several:
        return tuple(value)
    number = option.words.get(value, value)
    return int(number) if option.dtype == "int64" else float(number)


@dataclass(frozen=True)
class FileRecord:
    """The size and hash of a file as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Calibration:
    """How the activation scales of quantized matrix products were chosen: the rule, and the number of examples."""

    rule: str
    examples: int


@dataclass(frozen=True)
class Manifest:
    """The checked content of engine.json.

    results: the results by name, the written text first.
    files: every file but engine.json. plans: those of the files that are TensorRT plans.
    refused: the plans that TensorRT did not build, with its reason.
    calibration: None unless activations are quantized with calibrated scales.
    beams: the defaults of the search for continuations, of a language model that has one.
    controls: the inputs of the search beside its options, such as `prefix`.
    prefix: the tokens that texts begin with, unless a call gives others.
    suppress_first: the tokens that are never the first one after the prefix.
    speech: the longest sound, the languages and the tasks of a model of speech.
    caches: how the keys and values of attention are stored.
    shortlist: whether the search looks only among the tokens that the source makes likely.
    operators: the version of xformc's own operators in the model; None if there are none.
    """

    xformc: str
    name: str
    task: str
    target: Target
    precision: Precision
    inputs: Mapping[str, Input]
    results: Mapping[str, Result]
    defaults: SearchOptions | SampleOptions | None
    parameters: int
    weights: str
    files: Mapping[str, FileRecord]
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    calibration: Calibration | None = None
    operators: int | None = None
    controls: tuple[str, ...] = ()
    prefix: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    beams: SearchOptions | None = None
    speech: Speech | None = None
    caches: Caches = "auto"
    shortlist: bool = False

    @property
    def decoding(self) -> Decoding:
        """How the engine computes its results."""
        return TASKS[self.task].decoding

    @property
    def written(self) -> str:
        """The input that the engine writes; only for engines that write text."""
        return next(name for name, result in self.results.items() if result.kind == "text")

    @property
    def given(self) -> Mapping[str, Input]:
        """The inputs that a call gives: all but the written text."""
        return given_inputs(self.inputs, self.results)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of arrays and columns that only training needs."""
        return ("labels", *self.results)

    def can(self, ability: Ability) -> bool:
        """Whether the engine has an ability."""
        return ability.control in self.controls or any(self.files.keys() >= models for models in ability.models)

    def require(self, ability: Ability, wanted: str = "") -> None:
        """Raises: UserError for an engine without an ability, for which something is `wanted`."""
        if not self.can(ability):
            message = ability.lacking.format(self.name)
            raise UserError(f"{message}: {wanted}" if wanted else message, hint=ability.hint)

    @property
    def labels_words(self) -> bool:
        """Whether each word of a text has a result, so that texts are encoded word by word."""
        along = [item for item in self.results.values() if item.positions is not None and item.kind != "text"]
        return any(item.settings.get("each", "word") == "word" for item in along)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label names by id of an engine with a single result; None if that is not labels."""
        return next(iter(self.results.values())).labels if len(self.results) == 1 else None

    @property
    def positions(self) -> str | None:
        """The input whose positions are labelled, or None; for an engine with a single result."""
        return next(iter(self.results.values())).positions if self.labels else None

    @property
    def search(self) -> SearchOptions:
        """The defaults of the search; only for engines that search."""
        assert isinstance(self.defaults, SearchOptions), f"{self.task} has no search"
        return self.defaults

    @property
    def sampling(self) -> SampleOptions:
        """The defaults of sampling; only for engines that sample."""
        assert isinstance(self.defaults, SampleOptions), f"{self.task} has no sampling"
        return self.defaults

    @property
    def tokenizers(self) -> Mapping[str, str]:
        """The tokenizer's file for each input and result that has one."""
        every = (self.results, self.inputs)
        return {name: item.tokenizer for items in every for name, item in items.items() if item.tokenizer is not None}


def check_files(directory: Path | str, manifest: Manifest, *, verify_hashes: bool = True) -> None:
    """Check that each file exists inside the folder with its recorded size and, with `verify_hashes`, its sha256.

    Raises: UserError at the first file that differs; OSError at one that cannot be read.
    """
    folder = Path(directory).resolve()
    for name, record in manifest.files.items():
        path = folder / name
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise UserError("a link out of the engine's folder", place=str(path), hint="copy the file itself here")
        if not path.is_file():
            raise UserError("this file of the engine is missing", place=str(path), hint=COPY)
        found = path.stat().st_size
        if found != record.bytes:
            raise UserError(f"has {found:,} bytes; {record.bytes:,} were written", place=str(path), hint=COPY)
        path.open("rb").close()  # the error names it; that of ONNX Runtime has a number
        if verify_hashes and record_file(path) != record:
            raise UserError(CHANGED, place=str(path), hint=COPY)


def manifest_checksum(fields: Mapping[str, object]) -> str:
    """Return the value of `checksum` in engine.json: the sha256 of its other keys as sorted compact JSON."""
    rest = {key: value for key, value in fields.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def record_file(path: Path) -> FileRecord:
    """Return the record of a file for engine.json."""
    with path.open("rb") as handle:
        return FileRecord(path.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest())


CHANGED = "the content has changed since it was built: its sha256 differs"
COPY = "copy the engine's folder again, or rebuild it with `xformc build`"
OTHER_VERSION = "rebuild the engine with `xformc build`, or run it with the xformc that built it"
