"""The options of searches and of sampling: a command takes those of a class below as `**options` (see `xformc.cli`)."""

import re
from typing import Annotated, TypedDict

from typer import Option

from xformc.format.search_options import PenaltyKind, Preset, StopRule

BeamSize = Annotated[
    int | None, Option("--beam-size", "--beam", "-b", help="Hypotheses kept at each step; 1 is greedy.", metavar="N")
]
PENALTY_HELP = """A score is the log probability divided by ((5 + length) / 6)^ALPHA, or by that of another
--length-penalty-kind. Larger values prefer longer translations."""
LengthPenalty = Annotated[float | None, Option(help=PENALTY_HELP, metavar="ALPHA")]
MinLength = Annotated[
    int | None, Option(help="No text ends before it has this many tokens, the end token counted.", metavar="N")
]
KIND_HELP = """What ALPHA raises: (5 + length) / 6, or the length."""
LengthPenaltyKind = Annotated[PenaltyKind | None, Option(help=KIND_HELP)]
STOP_HELP = """When a search is done. first: as many hypotheses have finished as the beam is wide. best: none of the
others would be among the best if it ended now. complete: none of the others can be. shrink: each finished one makes the
beam narrower, until none is open."""
StopRuleName = Annotated[StopRule | None, Option(help=STOP_HELP)]
Patience = Annotated[float | None, Option(help="The rule `first` waits for FACTOR times as many.", metavar="FACTOR")]
PRESET_HELP = """Length penalty and stop rule of a paper or another library, instead of the engine's."""
PresetName = Annotated[Preset | None, Option("--preset", help=PRESET_HELP)]


def _named_tokens(given: list[str] | None) -> list[int | str] | None:
    """Tokens from the command line: digits are an id, everything else is a piece."""
    return None if given is None else [int(one) if re.fullmatch("[0-9]{1,18}", one) else one for one in given]


SUPPRESS_HELP = """A token that is never written: its id, or its piece as the vocabulary has it, such as '<unk>' or
'\u2581the'. May be repeated."""
SuppressTokens = Annotated[
    list[str] | None, Option("--suppress-tokens", help=SUPPRESS_HELP, metavar="TOKEN", callback=_named_tokens)
]
NGRAM_HELP = "No sequence of N tokens occurs twice in a text (0: no such rule)."
NgramSize = Annotated[int | None, Option("--no-repeat-ngram-size", help=NGRAM_HELP, metavar="N")]
REPETITION_HELP = "Above 1, tokens that the text already has are less likely (1: none)."
RepetitionPenalty = Annotated[float | None, Option(help=REPETITION_HELP, metavar="R")]
PRESENCE_HELP = "Subtract this from the score of each token that the text already has."
PresencePenalty = Annotated[float | None, Option(help=PRESENCE_HELP, metavar="D")]
FREQUENCY_HELP = "Subtract this for each time that the text already has the token."
FrequencyPenalty = Annotated[float | None, Option(help=FREQUENCY_HELP, metavar="D")]
GROUPS_HELP = "Divide the beam into N groups, of which each avoids the tokens of those before it."
BeamGroups = Annotated[int | None, Option("--beam-groups", help=GROUPS_HELP, metavar="N")]
DIVERSITY_HELP = "In a group, subtract this from the score of a token for each hypothesis of earlier groups with it."
DiversityPenalty = Annotated[float | None, Option(help=DIVERSITY_HELP, metavar="D")]
COVERAGE_HELP = """Weight in the score of a translation of how much of the source it has looked at; the engine's spec
must have decode: coverage."""
CoveragePenalty = Annotated[float | None, Option(help=COVERAGE_HELP, metavar="B")]

Temperature = Annotated[float | None, Option(help="Divide the logits by this; 0 is greedy.", metavar="T")]
TopK = Annotated[int | None, Option(help="Sample from the k most likely tokens (0: no limit).", metavar="K")]
TopP = Annotated[
    float | None, Option(help="Sample from the most likely tokens that add up to probability p.", metavar="P")
]
NewTokens = Annotated[int | None, Option(help="Stop after this many new tokens.", metavar="N")]
BIAS_HELP = """Do not force the prefix: its tokens have this share of the probability, below 1, beside their own, while
a text follows it."""
PrefixBias = Annotated[float | None, Option("--prefix-bias", help=BIAS_HELP, metavar="SHARE")]

NBest = Annotated[int | None, Option(help="Texts of each line, best first.", metavar="N")]
FACTOR_HELP = "Length limit of a translation: this times the source's tokens ..."
LengthFactor = Annotated[float | None, Option(help=FACTOR_HELP, metavar="FACTOR")]
LengthOffset = Annotated[int | None, Option(help="... plus this many tokens.", metavar="N")]


class BeamOptions(TypedDict):
    """Those of a beam search, of texts as of continuations (`runtime.options.BeamArguments`)."""

    beam_size: BeamSize
    n_best: NBest
    length_penalty: LengthPenalty
    length_penalty_kind: LengthPenaltyKind
    min_length: MinLength
    stop_rule: StopRuleName
    patience: Patience
    preset: PresetName
    beam_groups: BeamGroups
    diversity_penalty: DiversityPenalty


class EditOptions(TypedDict):
    """Those that edit the scores of tokens."""

    suppress_tokens: SuppressTokens
    no_repeat_ngram_size: NgramSize
    repetition_penalty: RepetitionPenalty
    presence_penalty: PresencePenalty
    frequency_penalty: FrequencyPenalty


class FilterOptions(TypedDict):
    """Those that say among which tokens samples are drawn."""

    temperature: Temperature
    top_k: TopK
    top_p: TopP


class TranslateOptions(BeamOptions, EditOptions, FilterOptions):
    """Those of `xformc translate`."""

    max_length_factor: LengthFactor
    max_length_offset: LengthOffset
    prefix_bias: PrefixBias
    coverage_penalty: CoveragePenalty


class GenerateOptions(FilterOptions, BeamOptions, EditOptions):
    """Those of `xformc generate`."""

    max_new_tokens: NewTokens


class TranscribeOptions(BeamOptions, EditOptions, FilterOptions):
    """Those of `xformc transcribe`."""

    prefix_bias: PrefixBias
    max_new_tokens: NewTokens
