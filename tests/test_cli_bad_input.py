"""Bad input gives one clear message and exit code 2, no traceback, and no partial output."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import CommandLine, finish, limit_file_size, listing, mistake, spawn
from tiny_engine import SENTENCES

from xformc.extras import EXTRAS

ROOT = Path(__file__).parents[1]
MAIN = "from xformc.__main__ import main; main()"


def test_a_missing_engine_is_a_mistake(xformc: CommandLine, tmp_path: Path) -> None:
    for command in ("translate", "inspect"):
        found = mistake(xformc(command, tmp_path / "none"))
        assert found.startswith(f"{tmp_path / 'none'}: no such folder\nhint: ")


def test_invalid_utf8_is_a_mistake_with_its_line(xformc: CommandLine, copy_engine: Path) -> None:
    found = mistake(xformc("translate", copy_engine, stdin=b"hello\n\xe4rger\n"), out="hello\n")
    assert found.startswith("<stdin>:2: not UTF-8: byte 0xe4 at byte column 1\nhint: ")


def test_a_very_long_line_is_a_mistake_with_its_line(xformc: CommandLine, copy_engine: Path) -> None:
    found = mistake(xformc("translate", copy_engine, stdin="hello\n" + "two dogs " * 2400), out="hello\n")
    assert found.startswith("line 2: ")
    assert "cut it with --truncate; with enough memory, --max-batch-tokens 28804 allows it" in found


def test_a_hint_names_only_options_that_the_command_has(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.txt"
    test.write_text("two dogs " * 2400 + "\n", encoding="utf-8")
    assert mistake(xformc("evaluate", copy_engine, test, test)).endswith("or cut it with --truncate")
    assert mistake(xformc("attention", copy_engine, "two dogs " * 2400)).endswith("hint: split it into shorter texts")


def test_a_line_that_never_ends_is_a_mistake(xformc: CommandLine, copy_engine: Path) -> None:
    found = mistake(xformc("translate", copy_engine, "--truncate", stdin=b"x" * (1 << 21)))
    assert found.startswith("<stdin>:1: the line is longer than")


def test_unknown_characters_are_not_a_mistake(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("translate", copy_engine, stdin="漢字\nhello 漢 world\n\N{GRINNING FACE}\n")
    assert (result.code, result.out, result.err) == (0, "\nhello world\n\n", "")


def test_empty_input_is_not_a_mistake(xformc: CommandLine, copy_engine: Path) -> None:
    assert xformc("translate", copy_engine, stdin="").out == ""
    assert xformc("translate", copy_engine, stdin="\n \n\t\n").out == "\n\n\n"


def test_a_flipped_byte_is_a_mistake(xformc: CommandLine, own_engine: Path) -> None:
    path = own_engine / "model.onnx"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for command in ("translate", "inspect"):
        assert mistake(xformc(command, own_engine)).startswith(f"{path}: the content has changed since it was built")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--beam-size", "0"), "--beam-size must be an integer from 1 to 40, not 0"),
        (("--beam-size", "1000"), "--beam-size must be an integer from 1 to 40, not 1000"),
        (("--n-best", "5"), "--n-best must be at most --beam-size, which is 4, not 5"),
        (("--length-penalty", "nan"), "--length-penalty must be a number"),
        (("--max-length-factor", "-1"), "--max-length-factor must be a number"),
        (("--threads", "0"), "threads must be an integer from 1"),
        (("--window", "0"), "window must be 1 or more, not 0"),
        (("--max-batch-tokens", "-3"), "--max-batch-tokens must be 1 or more, not -3"),
        (("--workers", "0"), "workers must be 1 or more, not 0"),
    ],
)
def test_an_option_out_of_range_is_a_mistake(
    xformc: CommandLine, copy_engine: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in mistake(xformc("translate", copy_engine, *options, stdin="hello\n"))


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("translat",), "No such command 'translat'.", "xformc --help"),
        (("--verbose",), "No such option", "xformc --help"),
        (("translate",), "Missing argument", "xformc translate --help"),
        (("inspect", "a", "b"), "unexpected extra argument", "xformc inspect --help"),
        (("translate", "a", "--beam-size", "x"), "--beam-size", "xformc translate --help"),
        (("corpus", "letters", "-o", "out"), "letters", "xformc corpus --help"),
    ],
)
def test_wrong_usage_is_a_mistake(xformc: CommandLine, arguments: tuple[str, ...], message: str, hint: str) -> None:
    found = mistake(xformc(*arguments))
    assert message in found
    assert found.endswith(f"\nhint: {hint}")


def test_evaluate_refuses_what_does_not_fit_together(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    one, two, none = tmp_path / "one", tmp_path / "two", tmp_path / "none"
    one.write_text("hello\n")
    two.write_text("hello\nworld\n")
    none.touch()
    missing = tmp_path / "missing"
    assert mistake(xformc("evaluate", copy_engine, one, two)).startswith(f"{two}: has 2 lines, but {one} has 1")
    assert mistake(xformc("evaluate", copy_engine, none, none)).startswith(f"{none}: holds no text")
    found = mistake(xformc("evaluate", copy_engine, missing, one))
    assert found == f"{missing}: cannot be read: No such file or directory"
    found = mistake(xformc("evaluate", copy_engine, one, one, "--tokenize", "no"))
    assert found.startswith("--tokenize no: sacreBLEU has no such tokenizer\nhint: choose one of 13a")


def test_evaluate_says_before_it_translates_what_a_tokenizer_needs(
    xformc: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sacrebleu

    class Lacking:
        TOKENIZERS = frozenset({"ko-mecab"})

        def __init__(self, tokenize: str) -> None:
            raise RuntimeError("Please install\n\n  sacrebleu[ko]")

    monkeypatch.setattr(sacrebleu, "BLEU", Lacking)
    found = mistake(xformc("evaluate", "a", "b", "c", "--tokenize", "ko-mecab"))
    assert found == "--tokenize ko-mecab: Please install sacrebleu[ko]"


def test_bench_refuses_what_it_cannot_measure(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    none.write_text("\n \n")
    assert mistake(xformc("bench", copy_engine, "--input", none)) == f"{none}: holds no text"
    assert mistake(xformc("bench", copy_engine, "--workers", "0")) == "--workers must be 1 or more, not 0"
    assert mistake(xformc("bench", tmp_path / "missing")).startswith(f"{tmp_path / 'missing'}: no such folder")


def test_an_unknown_spec_name_is_a_mistake_with_a_guess(xformc: CommandLine) -> None:
    found = mistake(xformc("check", "transformer_bas"))
    assert found == (
        "there is no spec 'transformer_bas', here or among the shipped ones\nhint: did you mean 'transformer_base'?"
    )


def test_a_folder_without_a_spec_is_named_with_the_run_around_it(xformc: CommandLine, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "20"
    checkpoint.mkdir(parents=True)
    without = f"{checkpoint}: there is no spec.yaml in this folder\nhint: "
    assert mistake(xformc("check", checkpoint)) == without + "give a folder that has one, such as a run"
    (tmp_path / "run" / "spec.yaml").write_text("extends: gpt\n")
    assert mistake(xformc("check", checkpoint)) == f"{without}give the run that it belongs to, {tmp_path / 'run'}"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("none", "'none' is the name of 2 shipped specs\nhint: write positions/none or tying/none"),
        (
            "blocks/attention",
            "there is no spec 'blocks/attention', here or among the shipped ones\n"
            "hint: did you mean 'local_attention'?",
        ),
        (
            "my_run",
            "there is no spec 'my_run', here or among the shipped ones\n"
            "hint: give the path of a spec, the folder of a run, or a name that `xformc list` prints",
        ),
        (
            "a_1_hed",
            "there is no spec 'a_1_hed', here or among the shipped ones\nhint: did you mean 'table3/a_1_head'?",
        ),
    ],
)
def test_a_name_that_is_not_one_spec_is_a_mistake(xformc: CommandLine, name: str, found: str) -> None:
    assert mistake(xformc("check", name)) == found


def test_too_many_numbers_are_a_mistake(xformc: CommandLine, tmp_path: Path) -> None:
    found = mistake(xformc("corpus", "numbers", "--output", tmp_path / "data", "--train", "1000000"))
    assert found.startswith("1,001,500 numbers were requested, but there are only 1,000,000")
    assert not (tmp_path / "data").exists()


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    arguments = ("corpus", "numbers", "--output", tmp_path / "data", "--train", "1000", "--valid", "10", "--test", "10")
    code, err = finish(spawn(*arguments, preexec_fn=limit_file_size(20_000)))
    assert (code, err) == (2, f"error: {tmp_path / 'data' / 'train.tsv'}: cannot be written: File too large\n")
    assert listing(tmp_path / "data") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["translate", "inspect", "--help", "--version"])
def test_a_full_disk_behind_stdout_is_a_mistake(copy_engine: Path, command: str) -> None:
    engine = () if command.startswith("-") else (copy_engine,)
    with open("/dev/full", "wb") as full:
        process = spawn(command, *engine, stdin=subprocess.PIPE, stdout=full)
        assert finish(process, b"hello\n" * 10) == (2, "error: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_message_that_cannot_be_written_keeps_its_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "xformc", "inspect", str(tmp_path)]
        assert subprocess.run(command, stderr=full, check=False, timeout=60).returncode == 2


def test_closed_streams_are_empty_ones(copy_engine: Path) -> None:
    for arguments, code in ((f"translate {copy_engine} <&-", 0), ("schema >&-", 0), ("inspect none 2>&-", 2)):
        shell = subprocess.run(
            f"{sys.executable} -m xformc {arguments}", shell=True, capture_output=True, check=False, timeout=60
        )
        assert (shell.returncode, shell.stdout, shell.stderr) == (code, b"", b"")


def test_a_message_cannot_steer_the_terminal(xformc: CommandLine) -> None:
    assert mistake(xformc("inspect", "\x1b[2Jgrößer\r")).startswith("\\x1b[2Jgrößer\\r: no such folder\nhint: ")


def test_a_reader_of_the_help_that_has_gone_ends_quietly() -> None:
    process = spawn("--help", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (141, b"")


@pytest.mark.parametrize("options", [("--window", "1"), ("--workers", "2"), ()])
def test_a_reader_that_has_gone_ends_quietly(copy_engine: Path, options: tuple[str, ...]) -> None:
    process = spawn("translate", copy_engine, *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.write(b"hello\n" * 10)
    process.stdin.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (141, b"")


def test_an_interrupt_is_exit_code_130(copy_engine: Path) -> None:
    process = spawn("translate", copy_engine, "--window", "1", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"hello\n"
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "interrupted\n")


def test_an_interrupt_waits_for_a_module_that_is_imported(tmp_path: Path) -> None:
    """Whose own code might end the process: PyTorch's does."""
    lines = ["import time", "print('begun', flush=True)", "time.sleep(1)", "print('ended', flush=True)"]
    (tmp_path / "slow.py").write_text("\n".join(lines))
    work = "def work():\n    import slow, time\n    time.sleep(20)\n"
    start = f"import xformc.cli, xformc.__main__\n{work}xformc.cli.main = work\nxformc.__main__.main()"
    process = subprocess.Popen[bytes](
        [sys.executable, "-c", start],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"ended\n"
    assert finish(process) == (130, "interrupted\n")


def test_an_interrupt_does_not_wait_for_the_batches_under_way(endless_engine: Path) -> None:
    options = ("--workers", "2", "--max-batch-tokens", "1")
    process = spawn("translate", endless_engine, *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n" + b"hello\n" * 5000)
    process.stdin.close()
    process.stdin = None
    assert process.stdout.readline() == b"\n"
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "interrupted\n")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_comes_before_a_mistake_is_written(xformc: CommandLine, copy_engine: Path, workers: str) -> None:
    lines = "".join(f"{line}\n" for line in SENTENCES * 100)
    arguments = ("translate", copy_engine, "--workers", workers, "--max-batch-tokens", "2000")
    found = mistake(xformc(*arguments, stdin=lines.encode() + b"\xff\nhello\n"), out=lines)
    assert found.startswith("<stdin>:801: not UTF-8")


def test_text_is_utf8_whatever_the_locale(copy_engine: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    process = spawn("inspect", tmp_path / "größe", stdout=subprocess.PIPE, env=environment)
    assert finish(process)[1].startswith(f"error: {tmp_path / 'größe'}: no such folder")


def test_every_package_of_an_extra_of_the_command_line_is_explained() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"pyyaml": "yaml"}
    for extra in ("build", "train", "demo", "report"):
        names = {re.split(r"[\[<>=~ ]", one)[0] for one in extras[extra]} - {"xformc"}
        assert {modules.get(name, name): extra for name in names}.items() <= EXTRAS.items()


@pytest.mark.parametrize("command", [["check", "tying/none"], ["ir", "gpt"], ["draw", "gpt"], ["schema"]])
def test_a_bare_install_says_what_to_install(command: list[str]) -> None:
    hide = "".join(f"sys.modules[{name!r}] = None; " for name in EXTRAS)
    code = f"import sys; {hide}sys.argv[1:] = {command!r}; {MAIN}"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.endswith("hint: pip install 'xformc[build]'\n")


@pytest.mark.parametrize(("package", "extra"), [("yaml", "build"), ("sacrebleu", "train"), ("num2words", "demo")])
def test_a_missing_extra_is_one_message(tmp_path: Path, package: str, extra: str) -> None:
    commands = {
        "yaml": ["check", "transformer_base"],
        "sacrebleu": ["evaluate", "a", "b", "c"],
        "num2words": ["corpus", "numbers", "-o", str(tmp_path)],
    }
    hide = f"sys.modules[{package!r}] = None; sys.argv[1:] = {commands[package]!r}"
    code = f"import sys; {hide}; {MAIN}"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == (
        f"error: this command needs the package {package}, which is not installed\n"
        f"hint: pip install 'xformc[{extra}]'\n"
    )


NO_ONNX_RUNTIME = """error: this needs ONNX Runtime, the package onnxruntime, which is not installed
hint: pip install 'xformc[cpu]', or for an NVIDIA GPU: pip install 'xformc[gpu]'
"""


def without_onnx_runtime(code: str) -> "subprocess.CompletedProcess[str]":
    hide = "import sys; sys.modules['onnxruntime'] = None; "
    return subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, check=False)


def test_an_engine_needs_onnx_runtime_and_says_how_to_get_it(copy_engine: Path) -> None:
    process = without_onnx_runtime(f"sys.argv[1:] = ['translate', {str(copy_engine)!r}]; {MAIN}")
    assert (process.returncode, process.stdout, process.stderr) == (2, "", NO_ONNX_RUNTIME)


def test_an_engine_needs_onnx_runtime_in_python_too(copy_engine: Path) -> None:
    code = f"""
from xformc.errors import UserError
from xformc.runtime import load
try:
    load({str(copy_engine)!r})
except UserError as error:
    print(f"error: {{error}}")
"""
    process = without_onnx_runtime(code)
    assert (process.stdout, process.stderr) == (NO_ONNX_RUNTIME, "")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["translate", "--help"], ["check", "gpt"], ["inspect"]]
)
def test_what_runs_no_engine_needs_no_onnx_runtime(copy_engine: Path, arguments: list[str]) -> None:
    complete = [*arguments, str(copy_engine)] if arguments == ["inspect"] else arguments
    process = without_onnx_runtime(f"sys.argv[1:] = {complete!r}; {MAIN}")
    assert (process.returncode, process.stderr) == (0, "")
