"""The options of decoding, one row each: engine.json, models and the checks of calls follow the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MAX_PENALTY, MAX_FACTOR, MAX_OFFSET, MAX_PATIENCE = 100.0, 100.0, 100_000, 100.0
MAX_LENGTH_PENALTY = 10.0  # the penalty of 7,000 tokens is within float32
MIN_REPETITION, MAX_SUPPRESSED, MAX_PREFIX, MAX_BIAS = 0.01, 100_000, 64, 0.999
MAX_GROUPS = 1024

Setting = int | float | str | tuple[int, ...]

PenaltyKind = Literal["gnmt", "average"]
StopRule = Literal["first", "best", "complete", "shrink"]
Preset = Literal["paper", "huggingface", "fairseq", "ctranslate2", "marian"]

LENGTH_PENALTIES: Mapping[str, float] = {"gnmt": 5.0, "average": 0.0}
"""The offset o of each kind of length penalty: ((n + o) / (1 + o))^alpha."""

STOP_RULES: Mapping[str, float] = {"first": 0, "best": 1, "complete": 2, "shrink": 3}
"""When the search of a sentence is done, as docs/search.md defines it."""


@dataclass(frozen=True)
class SearchOption:
    """An option: a number from `low` to `high` (None: as many as the vocabulary allows), or one of `words`.

    dtype: of the model's input. words: the number that the model is given for each. several: it is a list of tokens.
    absent: what a search does that lacks the input, as those of fixed shapes do; None for options that each one has.
    """

    name: str
    dtype: Literal["int64", "float32"]
    low: float = 0
    high: float | None = None
    words: Mapping[str, float] = field(default_factory=dict[str, float])
    absent: Setting | None = None
    several: bool = False


EDITS = (
    SearchOption("suppress_tokens", "int64", absent=(), several=True),
    SearchOption("no_repeat_ngram_size", "int64", 0, MAX_OFFSET, absent=0),
    SearchOption("repetition_penalty", "float32", MIN_REPETITION, MAX_PENALTY, absent=1.0),
    SearchOption("presence_penalty", "float32", -MAX_PENALTY, MAX_PENALTY, absent=0.0),
    SearchOption("frequency_penalty", "float32", -MAX_PENALTY, MAX_PENALTY, absent=0.0),
)
"""The options that edit the scores of tokens, of beam search and of sampling."""

OPTIONS = (
    SearchOption("beam_size", "int64", 1),
    SearchOption("n_best", "int64", 1),
    SearchOption("length_penalty", "float32", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
    SearchOption("max_length_factor", "float32", 0, MAX_FACTOR),
    SearchOption("max_length_offset", "int64", 0, MAX_OFFSET),
    SearchOption("min_length", "int64", 0, MAX_OFFSET, absent=0),
    SearchOption("length_penalty_kind", "float32", words=LENGTH_PENALTIES, absent="gnmt"),
    SearchOption("stop_rule", "int64", words=STOP_RULES, absent="first"),
    SearchOption("patience", "float32", 1, MAX_PATIENCE, absent=1.0),
    *EDITS,
    SearchOption("prefix_bias", "float32", 0, MAX_BIAS, absent=0.0),
    SearchOption("beam_groups", "int64", 1, MAX_GROUPS, absent=1),
    SearchOption("diversity_penalty", "float32", 0, MAX_PENALTY, absent=0.0),
    SearchOption("coverage_penalty", "float32", 0, MAX_PENALTY, absent=0.0),
)
"""The options of beam search, in the order of the fields of `SearchOptions`."""

SHAPES = ("beam_size", "n_best", "beam_groups")
"""The options that are one number for all texts of a batch; the others may have a value for each text."""

CONTROLS = tuple(option.name for option in OPTIONS if option.absent is not None)
"""The options that searches of fixed shapes lack."""

PRESETS: Mapping[str, Mapping[str, Setting]] = {
    name: dict(zip(("length_penalty", "length_penalty_kind", "stop_rule", "patience"), values, strict=True))
    for name, values in {
        "paper": (0.6, "gnmt", "first", 1.0),
        "huggingface": (1.0, "average", "best", 1.0),
        "fairseq": (1.0, "average", "first", 1.0),
        "ctranslate2": (1.0, "average", "first", 1.0),
        "marian": (0.0, "average", "shrink", 1.0),
    }.items()
}
"""The options that make the search that of a paper (Vaswani et al. 2017) or of another library, by default."""
