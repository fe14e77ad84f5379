import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from tiny_engine import SENTENCES

from xformc import __version__
from xformc.cli import GROUPS

COMMANDS = [name for group in GROUPS.values() for name in group]


def test_help_lists_every_command(xformc: CommandLine) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        result = xformc(*arguments)
        assert (result.code, result.err) == (0, "")
        assert all(f"\n  {command} " in result.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_an_example(xformc: CommandLine, command: str) -> None:
    result = xformc(command, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"  xformc {command} " in result.out


def test_version_is_printed(xformc: CommandLine) -> None:
    assert xformc("--version").out == f"xformc {__version__}\n"


def test_translate_writes_a_line_for_a_line(xformc: CommandLine, copy_engine: Path) -> None:
    text = "".join(f"{line}\n" for line in [*SENTENCES, "", *SENTENCES])
    result = xformc("translate", copy_engine, stdin=text)
    assert (result.code, result.out, result.err) == (0, text, "")


def test_translate_gives_the_same_whatever_the_window(xformc: CommandLine, copy_engine: Path) -> None:
    text = "\n".join(SENTENCES)
    for window in ("1", "3", "1000"):
        assert xformc("translate", copy_engine, "--window", window, stdin=text).out == text + "\n"


@pytest.mark.parametrize("options", [("--workers", "1"), ("--workers", "3"), ("--threads", "2"), ("--window", "1")])
def test_translate_keeps_the_order_whatever_the_workers(
    xformc: CommandLine, copy_engine: Path, options: tuple[str, ...]
) -> None:
    text = "".join(f"{SENTENCES[(index * 3) % 8]}\n" for index in range(1000))
    assert xformc("translate", copy_engine, *options, "--max-batch-tokens", "3000", stdin=text).out == text


def test_translate_n_best_has_lines_and_scores(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("translate", copy_engine, "--n-best", "2", "--length-penalty", "0", stdin="one\n\nwords\n")
    rows = [row.split(" ||| ") for row in result.out.splitlines()]
    assert [row[:2] for row in rows] == [["0", "one"], ["0", "one"], ["1", ""], ["2", "words"], ["2", "words"]]
    assert float(rows[1][3]) == float(rows[0][3]) - 1
    features = dict(zip(*[iter(rows[0][2].split())] * 2, strict=True))
    assert (float(features["logprob="]), int(features["length="])) == (float(rows[0][3]), 3)


def test_n_best_lists_have_the_log_probability_before_the_length_penalty(
    xformc: CommandLine, copy_engine: Path
) -> None:
    [line] = xformc("translate", copy_engine, "--n-best", "2", stdin="hello world\n").out.splitlines()[:1]
    _, _, features, score = line.split(" ||| ")
    _, log_probability, _, length = features.split()
    assert float(log_probability) == pytest.approx(float(score) * ((5 + int(length)) / 6) ** 0.6, abs=1e-3)


def test_translate_scores_come_before_a_tab(xformc: CommandLine, copy_engine: Path) -> None:
    score, text = xformc("translate", copy_engine, "--scores", stdin="hello world\n").out.split("\t")
    assert text == "hello world\n"
    assert float(score) < 0


def test_translate_json_is_an_object_a_line(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("translate", copy_engine, "--json", "--n-best", "2", stdin="hello world\n\n")
    first, second = [json.loads(line) for line in result.out.splitlines()]
    assert (first["line"], second["line"]) == (1, 2)
    assert [one["text"] for one in first["hypotheses"]] == ["hello world"] * 2
    assert second["hypotheses"] == [{"text": "", "score": 0.0}]


def test_translate_truncates_on_demand_with_a_warning(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("translate", copy_engine, "--truncate", stdin="two dogs " * 2400)
    assert result.code == 0
    assert result.out.startswith("two dogs two dogs")


@pytest.mark.parametrize(
    ("spec", "name"), [("tying/none", "none"), ("positions/sin", "sin"), ("a_1_head", "a_1_head"), ("gpt", "gpt")]
)
def test_check_takes_the_name_of_a_shipped_spec(xformc: CommandLine, spec: str, name: str) -> None:
    assert json.loads(xformc("check", spec, "--json").out)["name"] == name


def test_check_lists_parameters(xformc: CommandLine) -> None:
    lines = xformc("check", "memory_network", "--parameters").out.splitlines()
    assert lines[0].split() == ["keys/embedding/weight", "[vocabulary=200,", "d_model=64]", "12,800"]
    assert lines[9].endswith("4,096  tied to answer/1/kept/weight and 1 more")
    found = json.loads(xformc("check", "memory_network", "--parameters", "--json").out)["paths"][10]
    tied = ["answer/1/kept/bias", "answer/2/kept/bias"]
    assert found == {"path": "answer/0/kept/bias", "axes": ["d_model"], "shape": [64], "count": 64} | {
        "trained": True,
        "tied": tied,
    }


def test_check_keeps_its_columns_beside_long_names(xformc: CommandLine, tmp_path: Path) -> None:
    name = "a_size_with_a_long_name_and_more"
    text = "task: tagging\nsizes: {SIZE: 8, vocabulary: 40, labels: 3}\ninputs: {words: {tokens: vocabulary}}\n"
    text += "model: {states: {from: words, do: [embedding: SIZE]}, logits: {from: states, do: [linear: labels]}}\n"
    text += "train: {schedule: {peak: 0.01}, tokenizer: {kind: word}}\n"
    (tmp_path / "model.yaml").write_text(text.replace("SIZE", name))
    lines = [line for line in xformc("check", tmp_path / "model.yaml").out.splitlines() if line.startswith("  ")]
    assert len({len(line) for line in lines}) == 1 and name in lines[0]


def test_a_shell_completes_the_names_of_shipped_specs() -> None:
    environment = {"_XFORMC_COMPLETE": "complete_bash", "COMP_WORDS": "xformc check tying/", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "from xformc.cli import app; app(prog_name='xformc')"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert found.stdout.split() == ["tying/decoder_only", "tying/none", "tying/separate_vocabularies"]


def test_inspect_shows_the_engine(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("inspect", copy_engine)
    assert result.out.startswith("copy: translation, 0 trained parameters\n")
    assert "beam_size 4, n_best 1, length_penalty 0.6 (GNMT), " in result.out
    assert "ok   logits    1.0e-06 <= 1e-04  torch and engine" in result.out
    assert json.loads(xformc("inspect", copy_engine, "--json").out)["engine"]["name"] == "copy"
    assert len(xformc("inspect", copy_engine, "--certificate").out.splitlines()) == 2


def test_bench_measures_an_engine(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in SENTENCES))
    for more in ((), ("--input", text)):
        result = xformc("bench", copy_engine, "--seconds", "0.01", "--threads", "2", *more)
        assert result.code == 0
        assert "latency  p50 " in result.out
        rows = [line.split()[:2] for line in result.out.splitlines()[-8:]]
        assert rows == [[workers, tokens] for workers in "12" for tokens in ("1,024", "4,096", "16,384", "65,536")]


def test_bench_json_has_what_was_asked_for(xformc: CommandLine, copy_engine: Path) -> None:
    arguments = ("--seconds", "0.01", "--workers", "3", "--max-batch-tokens", "700", "--beam-size", "2", "--json")
    found = json.loads(xformc("bench", copy_engine, *arguments).out)
    assert [(one["workers"], one["max_batch_tokens"]) for one in found["throughput"]] == [(3, 700)]
    assert found["size"] == sum(path.stat().st_size for path in copy_engine.iterdir())
    assert found["latency"]["count"] >= 8


def test_evaluate_searches_with_a_preset(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in SENTENCES))
    scores, same = (
        xformc("evaluate", copy_engine, text, text, "--json", *more) for more in ((), ("--preset", "paper"))
    )
    assert json.loads(scores.out)["chrf"] == json.loads(same.out)["chrf"]
    refused = xformc("evaluate", copy_engine, text, text, "--preset", "marian")
    assert (refused.code, "the search of copy has no length_penalty_kind" in refused.err) == (2, True)
