"""The command line has the habits of others: usual options, one meaning for each, and nothing of Python in its help."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from tiny_run import write_corpus, write_spec

from xformc.cli import GROUPS

COMMANDS = [name for group in GROUPS.values() for name in group]
TYPES = re.compile(r"<(?:int|str|float|path|list|bool)\b[^<>\n]*>", re.IGNORECASE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_no_type(xformc: CommandLine, command: str) -> None:
    text = xformc(command, "--help").out
    assert TYPES.findall(text) == []
    assert re.findall(r"--[a-z-]+ (?:INTEGER|FLOAT|BOOLEAN)", text) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_common_options(xformc: CommandLine, command: str) -> None:
    text = xformc(command, "--help").out
    for option in ("-q, --quiet", "-v, --verbose", "-h, --help"):
        assert f"  {option} " in text


@pytest.mark.parametrize(
    ("short", "long"), [("-o", "--output"), ("-i", "--input"), ("-b", "--beam-size"), ("-j", "--workers")]
)
def test_short_options_mean_the_same_everywhere(xformc: CommandLine, short: str, long: str) -> None:
    texts = {command: xformc(command, "--help").out for command in COMMANDS}
    having = [command for command, text in texts.items() if f"  {long}" in text or f", {long}" in text]
    assert having
    assert [command for command in having if f"  {short}, {long}" not in texts[command]] == []


def test_the_help_has_the_commands_in_groups(xformc: CommandLine) -> None:
    text = xformc("--help").out
    assert [line[:-1] for line in text.splitlines() if line.endswith(":") and line[:1].isupper()] == [
        *("Options", *GROUPS)
    ]
    assert "..." not in text.partition("Models:")[2]


def test_version_has_a_short_option(xformc: CommandLine) -> None:
    assert xformc("-V").out == xformc("--version").out


def test_translate_reads_and_writes_files(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source, packed = tmp_path / "in.txt", tmp_path / "in.txt.gz"
    source.write_text("hello world\n\none\n")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    for given in (source, packed):
        out = tmp_path / "new" / "out.txt"
        result = xformc("translate", copy_engine, "-i", given, "-o", out)
        assert (result.code, result.out) == (0, "")
        assert out.read_text() == source.read_text()
    xformc("translate", copy_engine, "--input", packed, "--output", tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == source.read_bytes()
    xformc("translate", copy_engine, "-i", source, "-o", tmp_path / "out.zst")
    assert xformc("translate", copy_engine, "-i", tmp_path / "out.zst").out == source.read_text()
    assert xformc("translate", copy_engine, "-i", "-", "-o", "-", stdin="one\n").out == "one\n"


def test_a_failed_translation_leaves_the_output_as_it_was(
    xformc: CommandLine, copy_engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"one\n\xff\n")
    (tmp_path / "out").write_text("before")
    found = mistake(xformc("translate", copy_engine, "-i", tmp_path / "in", "-o", tmp_path / "out"))
    assert found.startswith(f"{tmp_path / 'in'}:2: not UTF-8")
    assert (tmp_path / "out").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone", "gone: cannot be read"), ("gone.gz", "gone.gz: cannot be read"), (".", "cannot be read")],
)
def test_an_input_that_is_not_there_is_a_mistake(
    xformc: CommandLine, copy_engine: Path, tmp_path: Path, name: str, message: str
) -> None:
    assert message in mistake(xformc("translate", copy_engine, "-i", tmp_path / name))


def test_a_folder_is_no_output(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    assert "is a folder" in mistake(xformc("translate", copy_engine, "-o", tmp_path, stdin="one\n"))


@pytest.mark.parametrize("option", ["-b", "--beam", "--beam-size"])
def test_the_beam_has_three_spellings(xformc: CommandLine, copy_engine: Path, option: str) -> None:
    assert "--beam-size must be an integer" in mistake(xformc("translate", copy_engine, option, "0", stdin="one\n"))


def test_list_names_every_shipped_spec_with_its_task(xformc: CommandLine) -> None:
    from xformc.specs import shipped_specs

    listed = json.loads(xformc("list", "--json").out)
    assert [one["name"] for one in listed] == list(shipped_specs())
    tasks = {one["name"]: one["task"] for one in listed}
    assert (tasks["table3/a_1_head"], tasks["gpt"], tasks["bert"]) == ("translation", "language_model", "tagging")
    assert all(one["about"] and "$schema" not in one["about"] for one in listed)
    assert "transformer_base " in xformc("list").out


@pytest.mark.parametrize("command", ["check", "ir", "train", "build", "draw", "report"])
def test_every_command_that_reads_a_spec_takes_settings(xformc: CommandLine, tmp_path: Path, command: str) -> None:
    more = {"train": ("--data", tmp_path, "-o", tmp_path / "run"), "build": ("-o", tmp_path / "engine")}.get(
        command, ()
    )
    found = mistake(xformc(command, "transformer_base", "--set", "sizes.lyers=2", *more))
    assert found.startswith("--set sizes.lyers:1:1: the size 'lyers' is never used")


def test_settings_change_the_model(xformc: CommandLine) -> None:
    counts = [
        json.loads(xformc("check", "transformer_base", *more, "--json").out)["parameters"]["total"]
        for more in ((), ("--set", "sizes.layers=1", "--set", "sizes.d_ff=64"))
    ]
    assert counts[1] < counts[0] / 2


def test_a_run_is_trained_built_and_evaluated_without_naming_its_spec_again(
    xformc: CommandLine, tmp_path: Path
) -> None:
    data, spec, run, engine = (
        write_corpus(tmp_path / "data"),
        write_spec(tmp_path),
        tmp_path / "run",
        tmp_path / "engine",
    )
    trained = xformc("train", spec, "--data", data, "-o", run, "--set", "train.steps=10", "-q")
    assert (trained.code, trained.out, trained.err) == (0, f"{run / 'weights.safetensors'}\n", "")
    assert xformc("train", run, "--data", data, "--resume").code == 0
    for source in (run, run / "weights.safetensors"):
        assert xformc("build", source, "-o", engine, "--target", "cpu").code == 0
        assert json.loads(xformc("inspect", engine, "--json").out)["engine"]["weights"] == "trained"
    lines = [line.split("\t") for line in (data / "valid.tsv").read_text().splitlines()]
    for index, name in enumerate(("valid.a", "valid.b")):
        (tmp_path / name).write_text("".join(f"{line[index]}\n" for line in lines))
    kept = tmp_path / "hypotheses.gz"
    assert xformc("evaluate", engine, tmp_path / "valid.a", tmp_path / "valid.b", "-o", kept).code == 0
    translated = xformc("translate", engine, "-i", tmp_path / "valid.a").out
    assert gzip.decompress(kept.read_bytes()).decode() == translated
    assert xformc("check", engine).out.startswith("tiny: translation")


def test_a_folder_without_a_spec_is_no_run(xformc: CommandLine, tmp_path: Path) -> None:
    assert "there is no spec" in mistake(xformc("build", tmp_path, "-o", tmp_path / "engine"))


def test_verify_without_pytorch_checks_what_needs_the_engine_alone(tmp_path: Path, xformc: CommandLine) -> None:
    write_spec(tmp_path)
    engine = tmp_path / "engine"
    assert xformc("build", tmp_path / "tiny.yaml", "-o", engine, "--target", "cpu").code == 0
    code = f"""
import sys
for name in ("torch", "onnx", "yaml", "safetensors", "ml_dtypes"):
    sys.modules[name] = None
from xformc.cli import main
sys.argv = ["xformc", "verify", {str(engine)!r}]
main()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    names = [line.split()[1] for line in found.stdout.splitlines() if line.startswith("ok ")]
    assert names == ["files", "model", "batch"]
    left = "forward, step, scores, attention, greedy, beam, controls, edits, defaults, samples"
    assert f"not repeated: {left}; these compare with PyTorch" in found.stdout
    (engine / "model.onnx").write_bytes(b"x" + (engine / "model.onnx").read_bytes()[1:])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "sha256 differs" in found.stderr


def test_verbose_says_what_is_done(xformc: CommandLine, copy_engine: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "xformc", "translate", copy_engine, "-v"],
        input="one\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == "one\n"
    assert re.search(r"^debug: .*model\.onnx: .* threads", found.stderr, re.MULTILINE)
    assert "exclude each other" in mistake(xformc("translate", copy_engine, "-v", "-q", stdin="one\n"))
