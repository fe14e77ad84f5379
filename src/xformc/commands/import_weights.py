"""`xformc import`: a model of another library becomes a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from xformc.commands.options import OUT
from xformc.format.names import SHORTLIST
from xformc.terminal import progress_console

if TYPE_CHECKING:
    from xformc.imports.tokenizers import ForeignTokenizer

SOURCE_HELP = """A folder of Hugging Face: config.json, and model.safetensors or its shards. Or a checkpoint of fairseq
or OpenNMT-py, a model of Marian (npz or bin) or of CTranslate2, or the folder of one, or of Eole."""
MAP_HELP = "The table of a family of your own.  [default: the shipped one of the model]"
REPLAY_HELP = """Run the origin beside the import, with transformers: refuse if the logits differ, and say whether
texts have other tokens."""


def import_weights(
    source: Annotated[Path, Argument(help=SOURCE_HELP, metavar="FOLDER|FILE")],
    *,
    output: Annotated[Path, Option(*OUT, help="The run's folder.", metavar="RUN")],
    table: Annotated[Path | None, Option("--map", help=MAP_HELP, metavar="FILE")] = None,
    compare: Annotated[bool, Option("--replay", help=REPLAY_HELP)] = False,
) -> None:
    """Import a model as a run: a short spec that extends a shipped one, its weights and its tokenizer.

    \b
    xformc import models/gpt2 -o runs/gpt2
    xformc import models/gpt2 -o runs/gpt2 --replay         and compare logits and tokens with transformers
    xformc import models/mine -o runs/mine --map mine.yaml
    xformc import wmt/checkpoint_best.pt -o runs/wmt        a Transformer of fairseq
    xformc import enpt -o runs/enpt                         one of Marian or Bergamot
    xformc import opus-ct2 -o runs/opus                     one of CTranslate2
    xformc build runs/gpt2 -o engines/gpt2

    Nothing is downloaded, and no pickle is run: of fairseq's checkpoints, numbers and options are read. What the config
    asks for and the family's table does not know is an error, all of it at once.
    """
    from xformc.imports.import_model import import_model

    with progress_console().status("importing"):
        done = import_model(source, output, table, compare=compare)
    print(f"{output}: a run of the family {done.family}, {done.parameters:,} parameters")
    if done.tokenizer is not None or done.texts:
        print(f"  {_described(done.tokenizer)}")
    if done.shortlist:
        print(f"  with a shortlist: xformc build {output} --shortlist {output / SHORTLIST}")
    if done.unread:
        print(f"  without the origin's {', '.join(done.unread)}, which would change its texts")
    if done.replay is not None:
        print(f"  {done.replay.line()}")
    if done.tokens is not None:
        print(f"  {done.tokens.line()}")


def _described(tokenizer: "ForeignTokenizer | None") -> str:
    if tokenizer is None:
        return "without a tokenizer: none of the files that are known is there"
    lost = f", {tokenizer.lost:,} of whose pieces have no id" if tokenizer.lost else ""
    return f"with {' and '.join(tokenizer.files)}{lost}"
