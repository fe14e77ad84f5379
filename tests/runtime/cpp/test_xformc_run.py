"""xformc-run writes, byte for byte, what the Python commands write."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine, Result, mistake
from tiny_engine import SENTENCES

from tests.conformance.engines import FOLDER, SOUND_FILES
from tests.runtime.cpp.compiled import run
from xformc import __version__
from xformc.format.manifest import manifest_checksum

LINES = [*SENTENCES, "", "  ", "hello 漢 world", "two\tdogs", "crlf\r", "größe ", "a man\u00a0\u2003"]
TEXT = "".join(f"{line}\n" for line in LINES)
HARD = '"quotes" and \\ backslash\n\x0b\x1f\x7f control\nno line ending'


@pytest.mark.parametrize(
    "options",
    ["", "--json", "--scores", "-b 8 --n-best 3", "--beam=8 --n-best=3 --json", "-b3 --n-best 2 --length-penalty 0",
     "--max-length-factor 0.5 --max-length-offset 0", "--window 1", "-j 2 --max-batch-tokens 100", "--threads 1"],
)  # fmt: skip
def test_translations_are_those_of_python(
    xformc: CommandLine, xformc_run: Path, copy_engine: Path, options: str
) -> None:
    expected = xformc("translate", copy_engine, *options.split(), stdin=TEXT + HARD)
    assert expected.code == 0
    assert run(xformc_run, copy_engine, *options.split(), stdin=TEXT + HARD) == expected


@pytest.mark.parametrize(
    "options", ["", "--json", "--json --token-scores", "--seed 9 --temperature 0.5 --top-k 5", "--top-p 0.8 -j 2"]
)
def test_continuations_are_those_of_python(
    xformc: CommandLine, xformc_run: Path, language_model: Path, options: str
) -> None:
    words = ["--max-new-tokens", "6", *options.split()]
    expected = xformc("generate", language_model, *words, stdin=TEXT)
    assert expected.code == 0
    assert run(xformc_run, language_model, *words, stdin=TEXT) == expected


@pytest.mark.parametrize("options", ["", "--json", "-j 2 --max-batch-tokens 20 --json"])
@pytest.mark.parametrize("name", ["tagger", "pairs"])
def test_labels_are_those_of_python(
    xformc: CommandLine, xformc_run: Path, request: pytest.FixtureRequest, name: str, options: str
) -> None:
    engine: Path = request.getfixturevalue(name)
    several = name == "pairs"
    text = (
        "".join(f"{one}\t{two}\n" for one, two in zip(SENTENCES, reversed(SENTENCES), strict=True)) if several else TEXT
    )
    expected = xformc("predict", engine, *options.split(), stdin=text)
    assert expected.code == 0
    assert run(xformc_run, engine, *options.split(), stdin=text) == expected


@pytest.mark.parametrize("options", ["", "--json", "-j 2 --max-batch-tokens 20 --json"])
def test_sounds_are_read_as_python_reads_them(xformc: CommandLine, xformc_run: Path, options: str) -> None:
    engine, words = FOLDER / "sounds", [SOUND_FILES / f"{name}.wav" for name in ("pcm_16", "stereo", "eight")]
    expected = xformc("predict", engine, *words, *options.split())
    assert (expected.code, expected.out.count("\n")) == (0, 3)
    assert run(xformc_run, engine, *words, *options.split()) == expected
    lines = "".join(f"{word}\n" for word in words)
    assert run(xformc_run, engine, *options.split(), stdin=lines) == expected
    assert xformc("predict", engine, *options.split(), stdin=lines) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [("sounds", ("rate.wav",)), ("sounds", ("cut.wav",)), ("sounds", ("none.wav",)), ("pair", ("one.wav",)),
     ("sounds", ("eight.wav", "--input", "lines")), ("tag", ("eight.wav",))],
)  # fmt: skip
def test_files_that_do_not_fit_give_the_message_of_python(
    xformc: CommandLine, xformc_run: Path, name: str, words: tuple[str, ...]
) -> None:
    given = (str(SOUND_FILES / words[0]), *words[1:])
    expected = xformc("predict", FOLDER / name, *given)
    mistake(expected)
    assert run(xformc_run, FOLDER / name, *given) == expected


def test_texts_of_ctc_without_a_tokenizer_are_tokens(xformc: CommandLine, xformc_run: Path, tmp_path: Path) -> None:
    engine = Path(shutil.copytree(FOLDER / "sounds", tmp_path / "engine"))
    fields = json.loads((engine / "engine.json").read_text())
    fields["results"]["text"]["tokenizer"] = None
    fields["checksum"] = manifest_checksum(fields)
    (engine / "engine.json").write_text(json.dumps(fields))
    for options in ((), ("--json",)):
        expected = xformc("predict", engine, SOUND_FILES / "eight.wav", *options)
        assert "6" in expected.out
        assert run(xformc_run, engine, SOUND_FILES / "eight.wav", *options) == expected


@pytest.mark.parametrize(
    "options",
    ["--suppress-tokens 5 --suppress-tokens \u2581dog", "--no-repeat-ngram-size 3 --repetition-penalty 3 --json",
     "--presence-penalty 2 --frequency-penalty -1", "--suppress-tokens dogs", "--repetition-penalty 0"],
)  # fmt: skip
def test_edits_are_those_of_python(xformc: CommandLine, xformc_run: Path, options: str) -> None:
    for command, name, text in (("transcribe", "judged", "two dogs\thello\n"), ("generate", "tales", "two\nhello\n")):
        expected = xformc(command, FOLDER / name, *options.split(), stdin=text)
        assert bool(expected.out) != bool(expected.err)
        assert run(xformc_run, FOLDER / name, *options.split(), stdin=text) == expected


@pytest.mark.parametrize("options", ["--align", "--align --n-best 2", "--json --attention"])
def test_links_are_those_of_python(xformc: CommandLine, xformc_run: Path, tmp_path: Path, options: str) -> None:
    sources, targets, engine = tmp_path / "sources", tmp_path / "targets", FOLDER / "aligned"
    sources.write_text("two dogs here\n\na man \u6f22\n")
    targets.write_text("zwei hunde\none\n\n")
    expected = xformc("translate", engine, "-i", sources, *options.split())
    assert expected.code == 0 and run(xformc_run, engine, "-i", sources, *options.split()) == expected
    shown = [word for word in options.split() if word in ("--json", "--attention")]
    expected = xformc("align", engine, sources, targets, *shown)
    assert expected.code == 0 and expected.out
    assert run(xformc_run, engine, "-i", sources, "--align-with", targets, *shown) == expected
    targets.write_text("zwei hunde\n")
    for first, second in ((sources, targets), (targets, sources)):
        expected = xformc("align", engine, first, second)
        assert expected.code == 2 and "hint: give one for each text" in expected.err
        assert run(xformc_run, engine, "-i", first, "--align-with", second) == expected


def test_streams_and_prompts_are_those_of_python(xformc: CommandLine, xformc_run: Path, language_model: Path) -> None:
    engine, lines = FOLDER / "tales", "two dogs \n\nhello\n"
    stops = ("--stop", "o", "--stop", "\u6f22")
    for options in (
        ("--seed", "3", "--stream"), ("--max-new-tokens", "1", "--stream"), ("--no-stream",), (*stops, "--stream"),
        (*stops, "--no-stream"), (*stops, "--json"),
    ):  # fmt: skip
        expected = xformc("generate", engine, *options, stdin=lines)
        assert expected.code == 0 and run(xformc_run, engine, *options, stdin=lines) == expected
    lines = '"two\\ndogs \\u00e9\\ud83d\\ude00"\n {"prompt": [1.5e3, {"b": 1}, null], "prompt" : "one\\t"}  \n'
    expected = xformc("generate", language_model, "--json", "--json-input", stdin=lines)
    assert expected.code == 0 and run(xformc_run, language_model, "--json", "--json-input", stdin=lines) == expected
    for options in ("--stream --json", "--json-input", "--stream -j 2", "--stream --window 1"):
        expected = xformc("generate", engine, *options.split(), stdin=lines)
        assert mistake(run(xformc_run, engine, *options.split(), stdin=lines)) == mistake(expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [("1", "the line has no text"), ('{"prompt": 1}', "the line has no text"),
     ('{"text": "a", "prompt": "b"}', "the line has a text and a prompt"), ("[", "not JSON: expected a value"),
     ('{"text": "a", "seed": 1}', "seed is no option of a text"), ("two", "not JSON: expected a value"),
     ('"a', "not JSON: a text without an end"), ('"\\x"', "not JSON: an escape"),
     ('"a" 1', "not JSON: more than one value"), ("[" * 100_000, "not JSON: nested too deeply"), ("01", "not JSON"),
     ('{"prompt": "a"', "not JSON: expected a comma"), ('"\\u12"', "not JSON: expected four"), ("", "not JSON"),
     ('"\\ud800"', "not valid Unicode text")],
)  # fmt: skip
def test_a_line_without_a_prompt_is_named(xformc_run: Path, line: str, message: str) -> None:
    found = run(xformc_run, FOLDER / "tales", "--json", "--json-input", stdin=f"{line}\n")
    assert mistake(found).startswith(f"line 1: {message}")


@pytest.mark.parametrize("options", ["", "--json", "-j 2 --max-batch-tokens 20 --json"])
def test_results_are_those_of_python(xformc: CommandLine, xformc_run: Path, options: str) -> None:
    text = "two dogs\n\n  hello \u6f22\na man rides a red bicycle\n"
    expected = xformc("predict", FOLDER / "heads", *options.split(), stdin=text)
    assert expected.code == 0
    assert run(xformc_run, FOLDER / "heads", *options.split(), stdin=text) == expected


@pytest.mark.parametrize("options", ["", "--json", "-b 3 --n-best 2 --json", "--length-penalty 0 --window 1"])
def test_transcriptions_are_those_of_python(xformc: CommandLine, xformc_run: Path, options: str) -> None:
    text = "two dogs\thello\na man\t\nhello world\twe were here\n"
    expected = xformc("transcribe", FOLDER / "join", *options.split(), stdin=text)
    assert expected.code == 0
    assert run(xformc_run, FOLDER / "join", *options.split(), stdin=text) == expected
    assert run(xformc_run, FOLDER / "judged", *options.split(), stdin=text) == xformc(
        "transcribe", FOLDER / "judged", *options.split(), stdin=text
    )
    lacking = xformc("transcribe", FOLDER / "join", stdin="one\n")
    assert "needs a text for each of first, second, found 1" in mistake(lacking)
    assert run(xformc_run, FOLDER / "join", stdin="one\n") == lacking


@pytest.mark.parametrize("options", ["", "--json", "--seed 4 --max-new-tokens 2 --temperature 0.5"])
def test_sampled_texts_are_those_of_python(xformc: CommandLine, xformc_run: Path, options: str) -> None:
    text = "two dogs\n\nhello world\n"
    expected = xformc("transcribe", FOLDER / "draw", *options.split(), stdin=text)
    assert expected.code == 0
    assert run(xformc_run, FOLDER / "draw", *options.split(), stdin=text) == expected


def test_a_stream_of_many_lines_keeps_their_order(
    xformc: CommandLine, xformc_run: Path, copy_engine: Path, tmp_path: Path
) -> None:
    lines = "".join(f"{SENTENCES[i % 8]} {i % 10}\n" for i in range(5000))
    (tmp_path / "in").write_text(lines, encoding="utf-8")
    expected = xformc("translate", copy_engine, stdin=lines)
    files = ("-i", tmp_path / "in", "-o", tmp_path / "a" / "out")
    assert run(xformc_run, copy_engine, *files) == Result(0, "", "")
    assert (tmp_path / "a" / "out").read_text(encoding="utf-8") == expected.out
    assert run(xformc_run, copy_engine, stdin=lines).out == expected.out


@pytest.mark.parametrize(
    "text",
    [b"hello\n\xe4rger\n", b"one\ntwo \xe2\x82(\n", b"one\n\xed\xa0\x80\n", b"\xef\xbb\xbfone\n\xc0\x80", b"a\0b\n",
     b"one\n" + b"x" * (1 << 21), b"x" * (1 << 20) + b"\n", b"hello\n" + b"two dogs " * 2400],
    ids=["latin 1", "cut short", "surrogate", "overlong", "NUL", "endless", "line ending counts", "too many tokens"],
)  # fmt: skip
def test_bad_lines_give_the_message_of_python(
    xformc: CommandLine, xformc_run: Path, copy_engine: Path, text: bytes
) -> None:
    expected = xformc("translate", copy_engine, stdin=text)
    assert expected.code == 2
    assert run(xformc_run, copy_engine, stdin=text) == expected


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfone\n", b"x" * 200_000 + b"\n", b"", b"\n\n", b"one\r"])
def test_odd_lines_give_the_output_of_python(
    xformc: CommandLine, xformc_run: Path, copy_engine: Path, text: bytes
) -> None:
    expected = xformc("translate", copy_engine, "--truncate", stdin=text)
    assert expected.code == 0
    assert run(xformc_run, copy_engine, "--truncate", stdin=text).out == expected.out


def test_a_cut_is_a_warning(xformc_run: Path, copy_engine: Path) -> None:
    result = run(xformc_run, copy_engine, "--truncate", stdin="two dogs " * 2400)
    assert (result.code, result.err) == (0, "warning: line 1: cut from 7201 to 4096 tokens\n")


@pytest.mark.parametrize(
    "options",
    ["--beam-size 0", "--beam-size 1000", "--n-best 5", "--threads 0", "--window 0", "--max-batch-tokens -3",
     "--workers 0", "--input missing", "--max-length-offset -1", "--length-penalty inf"],
)  # fmt: skip
def test_wrong_options_give_the_message_of_python(
    xformc: CommandLine, xformc_run: Path, copy_engine: Path, options: str
) -> None:
    expected = xformc("translate", copy_engine, *options.split(), stdin="hello\n")
    mistake(expected)
    assert run(xformc_run, copy_engine, *options.split(), stdin="hello\n") == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing argument 'ENGINE'."),
        ("a --beam-size x", "Invalid value for '--beam-size': 'x' is not a valid integer"),
        ("a -j 99999999999999999999", "Invalid value for '-j': '99999999999999999999' is not a valid integer"),
        ("a --top-p=", "Invalid value for '--top-p': '' is not a valid number"),
        ("a --beam-size", "Option '--beam-size' requires an argument."),
        ("a --json=yes", "Option '--json' does not take a value."),
        ("a --bem 1", "No such option: --bem"),
        ("a -x", "No such option: -x"),
    ],
)
def test_wrong_usage_is_a_mistake(xformc_run: Path, words: str, message: str) -> None:
    assert mistake(run(xformc_run, *words.split())) == f"{message}\nhint: xformc-run --help"


def test_options_of_other_tasks_are_a_mistake(xformc_run: Path, copy_engine: Path, language_model: Path) -> None:
    found = mistake(run(xformc_run, copy_engine, "--seed", "1"))
    assert found.startswith("copy is a translation engine; --seed needs a language_model or sampling engine")
    assert "; -b needs a translation or transcription engine" in mistake(run(xformc_run, language_model, "-b", "1"))
    assert (
        mistake(run(xformc_run, copy_engine, "--length-penalty", "nan")) == "--length-penalty must be a number, not nan"
    )


def test_what_is_no_text_is_named(xformc_run: Path, copy_engine: Path, images: Path) -> None:
    for ending, program in (("gz", "gzip"), ("zst", "zstd")):
        reads = f"in.{ending}: xformc-run does not read {program}\nhint: {program} -dc FILE | xformc-run ENGINE"
        assert mistake(run(xformc_run, copy_engine, "-i", f"in.{ending}")) == reads
        writes = f"o.{ending}: xformc-run does not write {program}\nhint: xformc-run ENGINE | {program} > FILE"
        assert mistake(run(xformc_run, copy_engine, "-o", f"o.{ending}")) == writes
    assert mistake(run(xformc_run, images, "-i", "a.npz")).startswith(
        "a.npz: xformc-run reads lines of text, not arrays"
    )
    assert "takes more than text: it needs image" in mistake(run(xformc_run, images, stdin="one\n"))


def test_a_line_lacks_a_text(xformc: CommandLine, xformc_run: Path, pairs: Path) -> None:
    lines = "one\ttwo\none\n"
    assert run(xformc_run, pairs, stdin=lines) == xformc("predict", pairs, stdin=lines)


def test_the_engine_is_checked(xformc: CommandLine, xformc_run: Path, own_engine: Path, tmp_path: Path) -> None:
    missing = run(xformc_run, tmp_path / "none")
    assert missing == xformc("translate", tmp_path / "none")
    path = own_engine / "model.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert mistake(run(xformc_run, own_engine)).startswith(f"{path}: the content has changed since it was built")
    assert "sha256" not in run(xformc_run, own_engine, "--no-verify-hashes").err


def test_help_and_version(xformc_run: Path) -> None:
    assert run(xformc_run, "--version") == run(xformc_run, "-V")
    assert run(xformc_run, "-V").out == f"xformc-run {__version__}\n"
    shown = run(xformc_run, "-h")
    assert (shown.code, shown.err) == (0, "")
    assert "-b, --beam, --beam-size N" in shown.out and "Exit codes: 0" in shown.out


def test_the_help_shows_every_option_of_the_commands(xformc: CommandLine, xformc_run: Path) -> None:
    shown = set(re.findall(r"--[a-z-]+", run(xformc_run, "--help").out))
    for command in ("translate", "generate", "predict", "transcribe"):
        others = set(re.findall(r"--[a-z-]+", xformc(command, "--help").out)) - shown
        python = {
            "--prefixes",
            "--rerank",
            "--rerank-weight",
            "--mbr",
            "--draft",
            "--draft-tokens",
            "--regex",
            "--json-schema",
            "--slots",
            "--samples",
            "--phrases",
            "--alternatives",
            "--part",
            "--language",
            "--task",
            "--timestamps",
        }
        assert others - python == {"--device", "--quiet"}, "a stream of the C API has one prefix and chooses nothing"


def test_json_numbers_are_those_of_python(xformc_run: Path, copy_engine: Path) -> None:
    [line] = run(xformc_run, copy_engine, "--json", stdin="one\n").out.splitlines()
    found = json.loads(line)
    assert json.dumps(found, ensure_ascii=False) == line
