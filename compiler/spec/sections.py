"""The sections of a spec that are plain settings: training, and decoding defaults."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from xformc.format.precision import WORDS
from xformc.format.search_options import (
    MAX_BIAS,
    MAX_GROUPS,
    MAX_LENGTH_PENALTY,
    MAX_PREFIX,
    MAX_SUPPRESSED,
    MIN_REPETITION,
    PRESETS,
    PenaltyKind,
    Preset,
    StopRule,
)
from xformc.format.speech import MAX_NAMES, MAX_SECONDS, MIN_STEP

Positive = Annotated[float, Field(gt=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
TrainPrecision = Annotated[
    Literal["auto", "float32", "bfloat16", "fp32", "bf16"], AfterValidator(lambda word: WORDS.get(word, word))
]
"""The number format of training. Short names are accepted and stored as long ones."""

Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_~*]+(/[A-Za-z0-9_~*]+)*$", max_length=400)]
"""The beginning of a parameter's path; `*` is any one name, `**` any number of names."""

Symbol = Annotated[str, StringConstraints(pattern=r"^[^\s\x00]+$", max_length=100)]
"""A token of its own: text without spaces."""

Count = Annotated[int, Field(ge=1, le=10**9)]
Decay = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(gt=0, lt=1)]
Copies = Annotated[int, Field(ge=1, le=1000)]


class Section(BaseModel):
    """A frozen section without unknown keys; a number must be a number, not a string of digits."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class OneOf(Section):
    """A section with exactly one of its parts."""

    example: ClassVar[str]

    @model_validator(mode="after")
    def _one(self) -> "OneOf":
        if len(self.model_fields_set) != 1 or self.chosen is None:
            raise ValueError(f"needs exactly one of {', '.join(type(self).model_fields)}, such as {self.example}")
        return self

    @model_serializer(mode="wrap")
    def _used(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out the others."""
        written: dict[str, object] = handler(self)
        return {name: value for name, value in written.items() if value is not None}

    @property
    def chosen(self) -> Section | None:
        """The part that is set."""
        parts = (getattr(self, name) for name in type(self).model_fields)
        return next((part for part in parts if part is not None), None)


class Tokenizer(Section):
    """How text is split into tokens: into pieces, words, characters, or the bytes of UTF-8, which need no training and
    keep every text as it is. `shared`: all token inputs have one vocabulary.

    With `sampling`, each epoch of the training text is split anew at random: of `bpe`, this part of the merges is left
    out (Provilkov et al. 2020); of `unigram`, it is the exponent of the probabilities (Kudo 2018). `symbols` are tokens
    of their own wherever they stand, such as tags; a run that starts from another one appends those that are new.
    """

    kind: Literal["bpe", "unigram", "word", "char", "byte"] = "bpe"
    shared: bool = True
    sampling: Share | None = None
    symbols: list[Symbol] = Field(default_factory=list[Symbol], max_length=10_000)


class Adam(Section):
    """Kingma and Ba (2015); the defaults are those of Vaswani et al. (2017), section 5.3."""

    beta1: Fraction = 0.9
    beta2: Fraction = 0.98
    epsilon: Positive = 1e-9


class AdamW(Section):
    """Loshchilov and Hutter (2019): Adam with weight decay apart from the gradient, for weights of two or more axes."""

    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Positive = 1e-8
    weight_decay: Decay = 0.01


class Lion(Section):
    """Chen et al. (2023): the sign of a momentum; its rate is a third to a tenth of that of AdamW."""

    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    weight_decay: Decay = 0.1


class Muon(Section):
    """Jordan et al. (2024): orthogonal updates of linear maps; embeddings, the output, gains and biases have AdamW's.

    The rate is that of AdamW.
    """

    momentum: Fraction = 0.95
    weight_decay: Decay = 0.1
    adamw: AdamW = AdamW()


class Optimizer(OneOf):
    """The optimizer: one of these."""

    example: ClassVar[str] = "{adamw: {}}"
    adam: Adam | None = None
    adamw: AdamW | None = None
    lion: Lion | None = None
    muon: Muon | None = None


class Schedule(Section):
    """The learning rate: it rises linearly to `peak` in `warmup_steps` steps, and then does as `kind` says.

    inverse_square_root: `scale * width^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)` (Vaswani et al. 2017, equation
    3). `width` names a size of the model. `peak` replaces `scale` and `width`. `decay: linear` multiplies the rate by
    `1 - step / steps`, so that it ends at 0.

    constant, linear, cosine, warmup_stable_decay: these need `peak`. All but constant end at `final` times the peak,
    after `train.steps` steps; warmup_stable_decay falls linearly in the last `decay_steps` steps.
    """

    kind: Literal["inverse_square_root", "constant", "linear", "cosine", "warmup_stable_decay"] = "inverse_square_root"
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 4000
    scale: Positive = 1.0
    width: str = "d_model"
    peak: Positive | None = None
    decay: Literal["none", "linear"] = "none"
    final: Fraction = 0.0
    decay_steps: Count | None = None

    @model_serializer(mode="wrap")
    def _used(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out settings without effect, and the default kind and width."""
        written: dict[str, object] = handler(self)
        idle = self.idle()
        if self.width == "d_model":
            idle.add("width")
        if self.kind == "inverse_square_root":
            idle.add("kind")
        return {name: value for name, value in written.items() if name not in idle}

    def idle(self) -> set[str]:
        """The names of settings without effect."""
        of_root = {"scale", "width", "decay"}
        if self.kind == "inverse_square_root":
            return {"final", "decay_steps"} | ({"peak"} if self.peak is None else {"scale", "width"})
        if self.kind == "constant":
            return of_root | {"final", "decay_steps"}
        return of_root if self.kind == "warmup_stable_decay" else of_root | {"decay_steps"}


class Checkpoint(Section):
    """When to write checkpoints: with both, whichever comes first; with neither, only at the end. With `scores`, each
    one's engine is scored on the validation data, beside training."""

    every_steps: Count | None = None
    every_minutes: Positive | None = 10.0
    scores: bool = False


class Masked(Section):
    """Masked tokens: predict `rate` of the tokens; the data is used `copies` times with other masks."""

    rate: Share = 0.15
    copies: Copies = 10


class Spans(Section):
    """Span corruption: write the spans that sentinels replace: `rate` of the tokens, `mean_length` tokens each, or
    more in a text that would need more than `sentinels` spans."""

    rate: Share = 0.15
    mean_length: Annotated[float, Field(ge=1, le=100)] = 3.0
    sentinels: Annotated[int, Field(ge=1, le=1000)] = 32
    copies: Copies = 10


class Denoise(Section):
    """Text infilling: write the whole text, of which masks replace spans."""

    rate: Share = 0.3
    mean_length: Annotated[float, Field(ge=1, le=100)] = 3.0
    copies: Copies = 10


class Prefix(Section):
    """Write the rest of a text that is cut at a random place."""

    copies: Copies = 10


class Objective(OneOf):
    """What is learned from plain text: one of these, for specs that declare their results."""

    example: ClassVar[str] = "{masked: {}}"
    masked: Masked | None = None
    spans: Spans | None = None
    denoise: Denoise | None = None
    prefix: Prefix | None = None


class LowRank(Section):
    """Updates of low rank (LoRA; Hu et al. 2022): the chosen weights change by `scale * up @ down`.

    `parameters` are patterns of paths: the weights of linear maps that fit them are trained so, and nothing else but
    the parameters that fit a pattern of `whole`. `rank` is the width between up and down.
    """

    rank: Annotated[int, Field(ge=1, le=4096)] = 8
    scale: Positive = 2.0
    parameters: Annotated[list[Pattern], Field(min_length=1)]
    whole: list[Pattern] = Field(default_factory=list[Pattern])


class Noise(Section):
    """Noise in the texts that are read, drawn anew in each epoch; words in angle brackets, such as `<BT>`, keep theirs.

    `case` of the lines are in lower case, in upper case, or with a capital for each word. `typing` of the letters are
    left out, doubled, swapped with the next, or replaced.
    """

    case: Annotated[float, Field(ge=0, le=1)] = 0.0
    typing: Fraction = 0.0

    @model_validator(mode="after")
    def _some(self) -> "Noise":
        if not self.case and not self.typing:
            raise ValueError("needs case or typing, such as {typing: 0.01}")
        return self


class Mixture(Section):
    """A part of a curriculum: for `steps` steps, an epoch has each row of a corpus as often as its weight says.

    `weights` are by the names of prepared corpora; the others keep theirs.
    """

    steps: Count
    weights: Annotated[dict[str, Annotated[float, Field(ge=0, lt=1e6)]], Field(min_length=1)]


SCORED = ("bleu", "chrf")
"""The choices of `select` that are scores of engines."""


class Train(Section):
    """The training recipe.

    `noise` changes the texts that are read. `objective` makes examples of plain text. `losses` sets the weight of
    each result's loss, and its settings. With `r_drop` (Liang et al. 2021), a step has each example twice, and the
    predictions that dropout makes different are drawn together with this weight (the paper's alpha). `batch_tokens`
    limits the source tokens and the target tokens of a batch. `accumulate` batches make a step. Training ends after
    `steps` steps or `minutes` minutes, whichever comes first. Of prepared data, `stages` mix the corpora in other
    ways, one stage after another; after the last one, they have the weights of their preparation. Pairs with more
    than `max_length` tokens on a side are skipped. Parameters whose path begins with a pattern of `freeze` keep
    their values, and with `low_rank` all that it does not name. `rates` multiply the schedule's rate for the
    parameters that a pattern matches; the last such pattern counts. The result is the mean of `average`
    checkpoints: the last ones or, with `select: best`, those of lowest validation loss, or with `bleu` or `chrf`
    those whose engines have the highest score. With `patience`, training ends after that many checkpoints that are
    not better. With `ema`, checkpoints have a moving average of the weights, which keeps this part of itself in
    each step. The activations of blocks whose path fits a pattern of `recompute` are not kept for the backward
    pass.
    """

    tokenizer: Tokenizer = Tokenizer()
    noise: Noise | None = None
    objective: Objective | None = None
    losses: dict[str, object] = Field(default_factory=dict[str, object])
    label_smoothing: Fraction = 0.1
    r_drop: Positive | None = None
    optimizer: Optimizer = Optimizer(adam=Adam())
    schedule: Schedule = Schedule()
    batch_tokens: Count = 25000
    accumulate: Count = 1
    clip_norm: Positive | None = None
    steps: Count = 100_000
    minutes: Positive | None = None
    stages: list[Mixture] = Field(default_factory=list[Mixture])
    checkpoint: Checkpoint = Checkpoint()
    average: Annotated[int, Field(ge=1, le=1000)] = 5
    select: Literal["last", "best", "bleu", "chrf"] = "last"
    patience: Count | None = None
    ema: Share | None = None
    freeze: list[Pattern] = Field(default_factory=list[Pattern])
    rates: dict[Pattern, Positive] = Field(default_factory=dict[Pattern, Positive])
    low_rank: LowRank | None = None
    recompute: list[Pattern] = Field(default_factory=list[Pattern])
    precision: TrainPrecision = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    max_length: Annotated[int, Field(ge=2, le=10**6)] = 256

    @property
    def copies(self) -> int:
        """How often a step has each row of a batch."""
        return 1 if self.r_drop is None else 2

    @property
    def scored(self) -> bool:
        """Whether checkpoints are scored by their engines."""
        return self.checkpoint.scores or self.select in SCORED


class MaxLength(Section):
    """The longest output: `floor(factor * source tokens) + offset` tokens."""

    factor: Annotated[float, Field(ge=0, le=100)] = 1.0
    offset: Annotated[int, Field(ge=0, le=100_000)] = 50


SuppressTokens = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**31)]],
    Field(max_length=MAX_SUPPRESSED),
    AfterValidator(lambda tokens: list(dict.fromkeys(tokens))),
]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Beginning = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=MAX_PREFIX)]
NgramSize = Annotated[int, Field(ge=0, le=100_000)]
RepetitionPenalty = Annotated[float, Field(ge=MIN_REPETITION, le=100)]
TokenPenalty = Annotated[float, Field(ge=-100, le=100)]


class Sample(Section):
    """How a language model continues a text.

    The logits are divided by `temperature` (0: take the most likely token). Sampling is then limited to the `top_k`
    most likely tokens (0: no limit), and among these to the fewest whose probabilities add up to `top_p`. The last
    five edit the logits first.
    """

    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=10**6)] = 0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = 100
    suppress_tokens: SuppressTokens = Field(default_factory=list[int])
    no_repeat_ngram_size: NgramSize = 0
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: TokenPenalty = 0.0
    frequency_penalty: TokenPenalty = 0.0


class TimestampsDecode(Section):
    """Tokens that are times, from `first` to the end of the vocabulary: 0 seconds, `step` seconds, and so on. A text
    with timestamps begins with one of at most `latest` seconds."""

    first: Token
    step: Annotated[float, Field(ge=MIN_STEP, le=MAX_SECONDS)] = 0.02
    latest: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = 1.0


class SpeechDecode(Section):
    """What a model of speech reads and writes: the longest sound, in seconds, the tokens that begin texts in a language
    and of a task, the one of texts without timestamps, and those of times."""

    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 30.0
    languages: dict[str, Token] = Field(default_factory=dict[str, int], max_length=MAX_NAMES)
    tasks: dict[str, Token] = Field(default_factory=dict[str, int], max_length=MAX_NAMES)
    no_timestamps: Token | None = None
    timestamps: TimestampsDecode | None = None


class Decode(Section):
    """The defaults for decoding. Each call of the engine may override them. With `sample`, text is drawn
    instead of searched for. `preset` sets the length penalty and the stop rule, unless they are set here too.
    Texts begin with the tokens of `prefix`, unless a call gives another one; these tokens are not scored.
    `speech` says how long sounds are cut into parts, and in which languages texts are.
    The tokens of `suppress_first` are never the first one that is written after the prefix.
    `alignment` is the path of the attention to the source whose weights align a translation with it; without one it
    is that of the last layer but one. `coverage` is that of the attention whose coverage of the source counts in the
    scores of texts, `coverage_penalty` times; an engine has it if one of them is set."""

    preset: Preset = "paper"
    beam_size: Annotated[int, Field(ge=1, le=1024)] = 4
    n_best: Annotated[int, Field(ge=1, le=1024)] = 1
    length_penalty: Annotated[float, Field(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)] = 0.6
    max_length: MaxLength = MaxLength()
    min_length: Annotated[int, Field(ge=0, le=100_000)] = 0
    length_penalty_kind: PenaltyKind = "gnmt"
    stop_rule: StopRule = "first"
    patience: Annotated[float, Field(ge=1, le=100)] = 1.0
    suppress_tokens: SuppressTokens = Field(default_factory=list[int])
    no_repeat_ngram_size: NgramSize = 0
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: TokenPenalty = 0.0
    frequency_penalty: TokenPenalty = 0.0
    beam_groups: Annotated[int, Field(ge=1, le=MAX_GROUPS)] = 1
    diversity_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    prefix: Beginning = Field(default_factory=list[int])
    suppress_first: SuppressTokens = Field(default_factory=list[int])
    speech: SpeechDecode | None = None
    prefix_bias: Annotated[float, Field(ge=0, le=MAX_BIAS)] = 0.0
    alignment: Pattern | None = None
    coverage: Pattern | None = None
    sample: Sample = Sample()

    @property
    def covers(self) -> bool:
        """Whether the engine has a coverage penalty, which calls may set."""
        return self.coverage is not None or self.coverage_penalty > 0

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        section = cast(dict[str, object], given)
        preset: Mapping[str, object] = PRESETS.get(str(section.get("preset")), {})
        return {**preset, **section}

    @field_validator("n_best")
    @classmethod
    def _within_the_beam(cls, value: int, info: ValidationInfo) -> int:
        width = info.data.get("beam_size", value)
        if value > width:
            raise ValueError(f"must be at most beam_size, which is {width}")
        return value

    @field_validator("prefix_bias")
    @classmethod
    def _of_no_default(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("prefix"):
            raise ValueError("the default prefix is always forced: leave out `prefix` or `prefix_bias`")
        if value and info.data.get("speech") is not None:
            raise ValueError(
                "has no effect: prefixes are forced in a model of speech; leave out `speech` or `prefix_bias`"
            )
        return value

    @field_validator("beam_groups")
    @classmethod
    def _equal_groups(cls, value: int, info: ValidationInfo) -> int:
        width = info.data.get("beam_size", value)
        if width % value:
            raise ValueError(f"must divide beam_size, which is {width}")
        return value

    @field_validator("max_length")
    @classmethod
    def _not_nothing(cls, value: MaxLength) -> MaxLength:
        if value.factor == 0 and value.offset == 0:
            raise ValueError("must allow at least one token: factor and offset are both 0")
        return value
