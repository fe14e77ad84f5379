import json
from pathlib import Path

import pytest
from command_line import CommandLine
from tiny_engine import SENTENCES

from xformc import __version__

COMMANDS = ["check", "schema", "corpus", "train", "average", "build", "verify", "inspect"]
COMMANDS += ["translate", "evaluate"]


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


def test_translate_n_best_has_lines_and_scores(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("translate", copy_engine, "--n-best", "2", "--length-penalty", "0", stdin="one\n\nwords\n")
    rows = [row.split(" ||| ") for row in result.out.splitlines()]
    assert [row[:2] for row in rows] == [["1", "one"], ["1", "one"], ["2", ""], ["3", "words"], ["3", "words"]]
    assert float(rows[1][2]) == float(rows[0][2]) - 1


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
    result = xformc("translate", copy_engine, "--truncate", stdin="two dogs " * 2000)
    assert result.code == 0
    assert result.out.startswith("two dogs two dogs")


def test_evaluate_prints_scores_signatures_and_speed(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    for name, lines in (("src", SENTENCES), ("ref", [*SENTENCES[:-1], "other words are here"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    result = xformc("evaluate", copy_engine, tmp_path / "src", tmp_path / "src", "--tokenize", "none")
    lines = result.out.splitlines()
    assert lines[0].startswith("BLEU         100.00   nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")
    assert lines[1].startswith("chrF2        100.00   nrefs:1|case:mixed|")
    assert lines[2] == "exact match  100.0%   8 of 8 sentences"
    assert "tokens/s" in lines[3]
    found = json.loads(xformc("evaluate", copy_engine, tmp_path / "src", tmp_path / "ref", "--json").out)
    assert found["exact_match"] == 7 / 8
    assert found["bleu"]["score"] < 100
    both = json.loads(
        xformc("evaluate", copy_engine, tmp_path / "src", tmp_path / "ref", tmp_path / "src", "--json").out
    )
    assert both["exact_match"] == 1
    assert both["bleu"]["signature"].startswith("nrefs:2|")


def test_inspect_shows_the_engine(xformc: CommandLine, copy_engine: Path) -> None:
    result = xformc("inspect", copy_engine)
    assert result.out.startswith("copy: translation, 0 trained parameters\n")
    assert "beam_width 4, n_best 1, length_penalty 0.6" in result.out
    assert "ok   logits    1.0e-06 <= 1e-04  torch and engine" in result.out
    assert json.loads(xformc("inspect", copy_engine, "--json").out)["engine"]["name"] == "copy"
    assert len(xformc("inspect", copy_engine, "--certificate").out.splitlines()) == 2


def test_corpus_numbers_are_disjoint_and_repeatable(xformc: CommandLine, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        result = xformc("corpus", "numbers", tmp_path / folder, "--train", "1500", "--valid", "20", "--test", "30")
        assert (result.code, result.err) == (0, "")
    texts = {path.name: path.read_text() for path in (tmp_path / "one").iterdir()}
    assert texts == {path.name: path.read_text() for path in (tmp_path / "two").iterdir()}
    sets = [set(texts[f"{split}.tsv"].splitlines()) for split in ("train", "valid", "test")]
    assert [len(lines) for lines in sets] == [1500, 20, 30]
    assert len(set.union(*sets)) == 1550
    assert "forty-two\tzweiundvierzig" in sets[0]
    pairs = zip(texts["test.en"].splitlines(), texts["test.de"].splitlines(), strict=True)
    assert [f"{english}\t{german}" for english, german in pairs] == texts["test.tsv"].splitlines()
