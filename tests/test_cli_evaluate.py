"""`xformc evaluate` on the engine that copies; engines of other tasks are evaluated in tests/trainer/test_tasks.py."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from tiny_engine import SENTENCES


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_evaluate_prints_scores_signatures_and_speed(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "src", SENTENCES)
    reference = write(tmp_path / "ref", [*SENTENCES[:-1], "other words are here"])
    lines = xformc("evaluate", copy_engine, source, source, "--tokenize", "none").out.splitlines()
    assert lines[0].startswith("chrF2        100.00   nrefs:1|case:mixed|")
    assert lines[1] == "exact match  100.0%   8 of 8 sentences"
    assert lines[2].startswith("BLEU         100.00   nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")
    assert "tokens/s" in lines[3] and "sentences/s" in lines[3]
    found = json.loads(xformc("evaluate", copy_engine, source, reference, "--json").out)
    assert found["exact_match"] == 7 / 8
    assert found["bleu"]["score"] < 100
    assert found["sentences"] == 8 and found["tokens_per_second"] > 0
    both = json.loads(xformc("evaluate", copy_engine, source, reference, source, "--json").out)
    assert both["exact_match"] == 1
    assert both["bleu"]["signature"].startswith("nrefs:2|")


def test_evaluate_skips_bleu_of_short_sentences(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "src", ["hello world", "twenty-one"])
    printed = xformc("evaluate", copy_engine, source, source).out
    assert "BLEU          skipped: every reference is shorter than 4 words\n" in printed
    assert json.loads(xformc("evaluate", copy_engine, source, source, "--json").out)["bleu"] is None


def test_evaluate_says_how_many_lines_it_leaves_out(
    xformc: CommandLine, copy_engine: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = write(tmp_path / "test.tsv", ["hello\thello", "two dogs\t", "", "one\tone"])
    found = json.loads(xformc("evaluate", copy_engine, table, "--json").out)
    assert (found["left_out"], found["sentences"]) == (2, 2)
    assert caplog.messages == [f"left out 2 of 4 lines, which have an empty column; the first is {table}:2"]
    caplog.clear()
    write(table, ["hello\thello"])
    assert json.loads(xformc("evaluate", copy_engine, table, "--json").out)["left_out"] == 0
    assert not caplog.messages


def test_evaluate_counts_brackets(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "src", ["hello world", "one two"])
    trees = write(tmp_path / "trees", ["(S hello world)", "(S (NP one) two)"])
    lines = xformc("evaluate", copy_engine, source, trees, "--metric", "brackets").out.splitlines()
    assert lines[0] == "bracket F1     0.0%   labelled, counted as evalb does; 2 of 2 outputs are not trees"
    found = json.loads(xformc("evaluate", copy_engine, source, trees, "--metric", "brackets", "--json").out)
    assert found["bracket_f1"] == 0
    wrong = mistake(xformc("evaluate", copy_engine, source, source, "--metric", "brackets"))
    assert wrong.startswith(f"{source}:1: the reference is not a tree: hello world\nhint: ")


def test_evaluate_says_how_many_files_it_takes(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "src", ["hello world"])
    found = mistake(xformc("evaluate", copy_engine, source))
    assert found.startswith("this engine is evaluated on a source and a reference or more, found 1")
    found = mistake(xformc("evaluate", copy_engine, source, source, source, "--metric", "brackets"))
    assert found.startswith("this engine is evaluated on a source and one reference, found 3")
