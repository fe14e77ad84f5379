"""The arguments and options that commands share: one name has one meaning, in every command."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.format.precision import Caches, PrecisionWord
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

Seed = Annotated[int, Option(help="Random seed of the first line; each later line has the next number.", metavar="N")]
PrefixText = Annotated[
    str | None, Option("--prefix", help="What every text begins with, such as a language tag.", metavar="TEXT")
]
PrefixFile = Annotated[
    Path | None, Option("--prefixes", help="What each text begins with: a file with a line for each.", metavar="FILE")
]
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
