"""The reader of prepared data: tokens per second, seconds to the first batch, and memory, for corpora of growing size.

    python -m benchmarks.reader [--gigabytes 0.1 1] [--seconds 20] [--folder DIR]

Each corpus has random sentence pairs of 1 to 79 tokens a side, 16 bits a token, in a temporary folder below DIR. A
process of its own reads each one as `xformc train` does, without a model: blocks, checksums, batches of 4,096 positions
of similar length. Tokens are those of both sides, without padding. Memory is the largest resident set of that process;
the line `imports` is a process that reads nothing.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xformc.format.tokens import SPECIAL
from xformc.trainer.checkpoint import State
from xformc.trainer.data.batches import Examples
from xformc.trainer.data.columns import Sequences
from xformc.trainer.data.prefetch import prefetched
from xformc.trainer.data.shards.blocks import id_type, make_blocks
from xformc.trainer.data.shards.encoding import Encoded
from xformc.trainer.data.shards.manifest import Manifest, Part, Stored, read_manifest, write_manifest
from xformc.trainer.data.shards.reader import Prepared, RowDraws, ShardExamples
from xformc.trainer.data.shards.writer import Progress, Writer
from xformc.trainer.data.text_examples import of_pairs
from xformc.trainer.loop import Recipe, stream

VOCABULARY, LONGEST, BATCH_TOKENS = 32_000, 256, 4_096
CHUNK = 16_384


def main() -> None:
    arguments = parse_arguments()
    if arguments.read is not None:
        print(json.dumps(read(arguments.read, arguments.seconds)))
        return
    print(f"{'corpus':>10} {'tokens':>15} {'tokens/s':>12} {'first batch, s':>15} {'memory, MB':>11}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as empty:
        show("imports", 0, Path(empty), 0.0)
    for size in arguments.gigabytes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            show(f"{size:g} GB", write(Path(folder), int(size * 1e9)), Path(folder), arguments.seconds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 1.0], help="sizes of the corpora")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each is read")
    parser.add_argument("--folder", type=Path, help="where the corpora are written")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def show(name: str, tokens: int, folder: Path, seconds: float) -> None:
    command = [sys.executable, "-m", "benchmarks.reader", "--read", str(folder), "--seconds", str(seconds)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    speed, first, memory = found["tokens_per_second"], found["first"], found["megabytes"]
    print(f"{name:>10} {tokens:15,} {speed:12,.0f} {first:15.2f} {memory:11,.0f}", flush=True)


def write(folder: Path, size: int) -> int:
    """Write a corpus of about `size` bytes; its number of tokens."""
    random, kind = np.random.default_rng(0), id_type(VOCABULARY)
    columns = {name: Stored((), (3,), VOCABULARY, "") for name in ("source", "target")}
    lengths = random.integers(1, 80, (CHUNK, 2))
    rows = [tuple(random.integers(4, VOCABULARY, count).tolist() for count in pair) for pair in lengths]
    blocks, tokens = list(make_blocks(rows, kind)), dict(zip(columns, lengths.sum(0).tolist(), strict=True))
    writer, chunk = Writer(folder, Progress("")), Encoded(blocks, tokens, {})
    bytes_of_chunk = sum(len(block.content) for block in blocks)
    for _ in range(max(1, size // bytes_of_chunk)):
        writer.append(0, chunk)
    writer.close()
    (done,) = writer.progress.done
    part = Part("random", done.rows, done.blocks, done.tokens, {}, 1.0, "")
    write_manifest(Manifest("translation", columns, LONGEST, [part], writer.files()), folder)
    return sum(done.tokens.values())


def pairs(columns: Mapping[str, Sequences], draws: RowDraws) -> Examples:
    """The examples of a translation."""
    return of_pairs(columns["source"], columns["target"], LONGEST)


def read(folder: Path, seconds: float) -> dict[str, float]:
    """Read a corpus for so many seconds; nothing if that is 0."""
    tokens, first, spent = 0, 0.0, 1.0
    if seconds:
        began = time.perf_counter()
        manifest = read_manifest(folder)
        repeats, special = [one.repeat for one in manifest.parts], dict.fromkeys(manifest.columns, SPECIAL)
        examples = ShardExamples(Prepared(folder, manifest), LONGEST, repeats, special, pairs)
        for _, batch in prefetched(stream(examples, recipe(), State())):
            first = first or time.perf_counter() - began
            tokens += int(sum((tensor > 0).sum() for tensor in batch.inputs.values()))
            spent = time.perf_counter() - began
            if spent > seconds:
                break
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"tokens_per_second": tokens / spent, "first": first, "megabytes": memory}


def recipe() -> Recipe:
    return Recipe(lambda step: 0.0, BATCH_TOKENS, 1, None, 1, False, 1, None, None, None)


if __name__ == "__main__":
    main()
