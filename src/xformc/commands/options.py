"""The arguments and options that commands share: one name has one meaning, in every command."""

import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.format.precision import Caches, PrecisionWord
from xformc.format.search_options import PenaltyKind, Preset, StopRule
from xformc.format.targets import TargetWord
from xformc.runtime.devices.device import DeviceName
from xformc.specs import shipped_specs

SPEC_HELP = "A spec file, a run, or the name of a shipped spec (see `xformc list`)."


def complete_spec(incomplete: str) -> list[str]:
    """The names of shipped specs that begin so, for a shell."""
    return [name for name in shipped_specs() if name.startswith(incomplete)]


SpecName = Annotated[str, Argument(help=SPEC_HELP, metavar="SPEC", autocompletion=complete_spec)]
FILES_HELP = "The examples, as files such as one.wav or one.png, of an engine whose only input is read from them."
InputFiles = Annotated[list[Path] | None, Argument(help=FILES_HELP, metavar="FILE")]
EngineFolder = Annotated[Path, Argument(help="An engine: a folder made by `xformc build`.", metavar="ENGINE")]

Settings = Annotated[
    list[str] | None,
    Option("--set", help="Replace a value of the spec: sizes.d_model=256. May be repeated.", metavar="PATH=VALUE"),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
JsonLines = Annotated[bool, Option("--json", help="Print a JSON object for each line.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Log details to standard error.")]

TARGET_HELP = """portable: standard ONNX only; cpu: also ONNX Runtime's operators; native: also xformc's kernels (see
`xformc kernels`); auto: native if there are kernels, else cpu; cuda: a GPU, by ONNX Runtime; tensorrt: a GPU, by
TensorRT."""
TargetName = Annotated[TargetWord, Option("--target", help=TARGET_HELP, metavar="TARGET")]
PRECISION_HELP = """Number format of the weights, unless the spec sets it: float32 (fp32), float16 (fp16), bfloat16
(bf16), int8, int4 or float8 (fp8).  [default: float32]"""
CACHES_HELP = """How target native keeps the keys and values that a step reads. int8: half the memory of float16. auto:
float16 with bfloat16, int8 or int4 weights, else float32.  [default: the spec's, or auto]"""
CachesName = Annotated[Caches | None, Option("--caches", help=CACHES_HELP, metavar="FORMAT")]
PrecisionName = Annotated[PrecisionWord | None, Option("--precision", help=PRECISION_HELP, metavar="FORMAT")]

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

SUPPRESS_HELP = """A token that is never written: its id, or its piece as the vocabulary has it, such as '<unk>' or
'\u2581the'. May be repeated."""
SuppressTokens = Annotated[list[str] | None, Option("--suppress-tokens", help=SUPPRESS_HELP, metavar="TOKEN")]
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


def named_tokens(given: list[str] | None) -> list[int | str] | None:
    """Tokens from the command line: digits are an id, everything else is a piece."""
    return None if given is None else [int(one) if re.fullmatch("[0-9]{1,18}", one) else one for one in given]


Temperature = Annotated[float | None, Option(help="Divide the logits by this; 0 is greedy.", metavar="T")]
TopK = Annotated[int | None, Option(help="Sample from the k most likely tokens (0: no limit).", metavar="K")]
TopP = Annotated[
    float | None, Option(help="Sample from the most likely tokens that add up to probability p.", metavar="P")
]
NewTokens = Annotated[int | None, Option(help="Stop after this many new tokens.", metavar="N")]
Seed = Annotated[int, Option(help="Random seed of the first line; each later line has the next number.", metavar="N")]

PrefixText = Annotated[
    str | None, Option("--prefix", help="What every text begins with, such as a language tag.", metavar="TEXT")
]
PrefixFile = Annotated[
    Path | None, Option("--prefixes", help="What each text begins with: a file with a line for each.", metavar="FILE")
]
BIAS_HELP = """Do not force the prefix: its tokens have this share of the probability, below 1, beside their own, while
a text follows it."""
PrefixBias = Annotated[float | None, Option("--prefix-bias", help=BIAS_HELP, metavar="SHARE")]
PHRASES_HELP = "Phrases that each text must have: a file with a line for each, its phrases separated by tabs."
PhraseFile = Annotated[Path | None, Option("--phrases", help=PHRASES_HELP, metavar="FILE")]

OUT = ("--output", "--out", "-o")
INPUT_HELP = "Read lines from this file, which may be .gz or .zst; `-` is standard input.  [default: -]"
OUTPUT_HELP = "Write to this file, compressed if it ends in .gz or .zst; `-` is standard output.  [default: -]"
TextInput = Annotated[Path | None, Option("--input", "-i", help=INPUT_HELP, metavar="FILE")]
TextOutput = Annotated[Path | None, Option(*OUT, help=OUTPUT_HELP, metavar="FILE")]

Truncate = Annotated[bool, Option("--truncate", help="Cut texts that are too long, with a warning.")]
Window = Annotated[
    int | None,
    Option(help="Lines read ahead to sort by length; 1 answers each at once.  [default: 1024 per worker]", metavar="N"),
]
Slots = Annotated[
    int | None,
    Option(
        help="Write this many texts together, each of which makes room for the next one when it has ended.",
        show_default=False,
        metavar="N",
    ),
]
Workers = Annotated[
    int | None,
    Option(
        "--workers",
        "-j",
        help="Batches run at the same time, sharing the cores.  [default: as many as the input keeps busy]",
        metavar="N",
    ),
]
Threads = Annotated[int | None, Option(help="Cores to use.  [default: all]", metavar="N")]
Device = Annotated[
    DeviceName | None, Option(help="Run on cpu or cuda (a GPU).  [default: the engine's target]", metavar="DEVICE")
]
