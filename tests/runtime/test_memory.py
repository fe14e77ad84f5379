"""The memory of a stream does not depend on its length, measured in a new process with a compiled engine."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_engine import SENTENCES, train_tokenizer

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec

SPEC = "extends: transformer_base\nsizes: {{layers: 1, d_model: 8, d_ff: 8, heads: 1, vocabulary: {size}}}\n"

TRANSLATE = """
import atexit, sys
from xformc.cli import main
from xformc.runtime.checks.measure import peak_memory
atexit.register(lambda: print(peak_memory(), file=sys.stderr))
main()
"""


@pytest.fixture(scope="module")
def tiny_transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    size = train_tokenizer(folder / "tokenizer.model")
    (folder / "tiny.yaml").write_text(SPEC.format(size=size))
    tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), folder / "tokenizer.model")
    build_engine(load_spec(folder / "tiny.yaml"), None, tokenizers, "portable", folder / "engine")
    return folder / "engine"


def peak_of(engine: Path, lines: int, folder: Path) -> int:
    """The peak memory in bytes of `xformc translate` for a file with this number of lines."""
    source, target = folder / "in", folder / "out"
    source.write_text("".join(f"{SENTENCES[number % 8]}\n" for number in range(lines)))
    options = ("--workers", "2", "--window", "256", "--beam-size", "1")
    limits = ("--max-length-factor", "0", "--max-length-offset", "2")
    command = [sys.executable, "-c", TRANSLATE, "translate", str(engine), *options, *limits]
    with source.open("rb") as stdin, target.open("wb") as stdout:
        process = subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, check=True, timeout=600)
    assert len(target.read_bytes().splitlines()) == lines
    return int(process.stderr)


def test_a_long_file_takes_the_memory_of_a_short_one(tiny_transformer: Path, tmp_path: Path) -> None:
    short, long = (peak_of(tiny_transformer, lines, tmp_path) for lines in (1_500, 30_000))
    assert long - short < 6 << 20, f"{short:,} bytes for 1,500 lines, {long:,} for 30,000"
