"""Distillation: the rows are those of the engine, whatever stopped it and however many processes worked."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, mistake
from tiny_engine import make_engine, write_manifest

from tests.runtime.small_engines import SmallEngines
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime.engine import load
from xformc.specs import find_spec
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import Split, find_corpus, read_corpus
from xformc.trainer.distill import bulk
from xformc.trainer.distill.bulk import Distilled, distill
from xformc.trainer.distill.decoder import Decoding
from xformc.trainer.distill.on_ray import on_ray

ENGINES = Path(__file__).parent.parent / "conformance" / "engines"
LINES = ["one two three", "", "red house", "blue", "  two trees ", "red " * 9000]
ROWS = 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distill")
    make_engine(folder / "engine")
    lines = [LINES[0 if index % 30 == 7 else (index % 5)] for index in range(ROWS)]
    (folder / "mono").write_text("".join(f"{line}\n" for line in [*lines, LINES[5]]))
    (folder / "data").mkdir()
    (folder / "data" / "valid.tsv").write_text("blue\tblau\n")
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 8)


@pytest.fixture(scope="module")
def generates(folder: Path) -> Path:
    """A language model with the certificate of another engine."""
    copied = Path(shutil.copytree(ENGINES / "generate", folder / "generates"))
    shutil.copy(folder / "engine" / "certificate.json", copied)
    return copied


def test_results_without_text_are_counted(folder: Path, xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mono").write_text("red house\n\u2603\n")  # the engine copies the unknown token, which no text has
    done = xformc("distill", folder / "engine", tmp_path / "mono", "-o", tmp_path / "out", "-j", "1")
    assert done.code == 0, done.err
    assert "1 rows of 2 lines" in done.out and done.out.endswith("(dropped: 1 with an empty result)\n")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "train.jsonl").read_text().splitlines()]


def test_rows_are_the_engines_and_train_reads_them(folder: Path, xformc: CommandLine) -> None:
    done = xformc("distill", folder / "engine", folder / "mono", "-o", folder / "best", "--n-best", "2", "-j", "1",
                   "--valid", folder / "data")  # fmt: skip
    assert done.code == 0, done.err
    dropped = "(dropped: 18 without text, 1 too long for the engine)"
    assert done.out == f"{folder / 'best'}: 144 rows of 91 lines, 1,002 tokens {dropped}\n"
    found = rows(folder / "best")
    with load(folder / "engine", threads=1) as engine:
        wanted = engine.translate(["red house"], n_best=2)[0]
    pairs = [(row["target"], row["score"]) for row in found if row["source"] == "red house"][:2]
    assert pairs == [(one.text, round(one.score, 4)) for one in wanted]
    schema = data_schema(load_spec(find_spec("transformer_base")))
    corpus = read_corpus(find_corpus(folder / "best", schema), schema)
    assert isinstance(corpus.train, Split) and len(corpus.train) == 144 and len(corpus.valid) == 1


def test_back_translations_are_sources_with_a_tag(folder: Path) -> None:
    decoding = Decoding(
        folder / "engine", {"beam_size": 1, "max_length_factor": 0.5, "max_length_offset": 0}, back=True, tag="<BT>"
    )
    distill([folder / "mono"], decoding, folder / "back")
    with load(folder / "engine", threads=1) as engine:
        [[wanted]] = engine.translate(["one two three"], beam_size=1, max_length_factor=0.5, max_length_offset=0)
    first = rows(folder / "back")[0]
    assert (first["source"], first["target"]) == (f"<BT> {wanted.text}", "one two three")


def test_what_has_ended_is_not_taken_for_another_job(folder: Path) -> None:
    decoding, (first, second) = Decoding(folder / "engine", {"n_best": 1}), (folder / "some", folder / "more")
    first.write_text("red house\n")
    second.write_text("red house\none two\n")
    done = distill([first], decoding, folder / "ended")
    assert distill([first], decoding, folder / "ended", resume=True) == done
    for texts, other, message in (
        (first, Decoding(folder / "engine", {"n_best": 2}), "begun with another engine or other options"),
        (second, decoding, "the text has changed"),
    ):
        with pytest.raises(UserError, match=message):
            distill([texts], other, folder / "ended", resume=True)


def test_killed_distillation_resumes_to_the_byte(folder: Path) -> None:
    decoding = Decoding(folder / "engine", {"n_best": 2})
    distill([folder / "mono"], decoding, folder / "whole")

    def stop(so_far: Distilled) -> None:
        if so_far.lines == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill([folder / "mono"], decoding, folder / "cut", report=stop)
    assert not (folder / "cut" / "train.jsonl").exists()
    with (folder / "cut" / "train.jsonl.partial").open("ab") as file:
        file.write(b'{"source": "what a killed process')
    with pytest.raises(UserError, match="already exists") as caught:
        distill([folder / "mono"], decoding, folder / "cut")
    assert caught.value.hint == "continue it with --resume"
    with pytest.raises(UserError, match="begun with another engine or other options"):
        distill([folder / "mono"], Decoding(folder / "engine", {"n_best": 1}), folder / "cut", resume=True)
    (folder / "other").write_text("other\n" * 30)
    with pytest.raises(UserError, match="the text has changed"):
        distill([folder / "other"], decoding, folder / "cut", resume=True)
    distill([folder / "mono"], decoding, folder / "cut", resume=True, workers=2)
    names = ("train.jsonl", "distilled.json")
    assert [(folder / "cut" / name).read_bytes() for name in names] == [
        (folder / "whole" / name).read_bytes() for name in names
    ]
    assert sorted(path.name for path in (folder / "cut").iterdir()) == sorted(names)


def test_nothing_is_left_of_what_failed_before_its_first_record(
    folder: Path, xformc: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes(b"red house\n\xff\n")
    (tmp_path / "empty").write_text("\n" * 20)
    (tmp_path / "there").mkdir()
    for text, message in (("gone", "cannot be read"), ("bad", "not UTF-8"), ("empty", "no line that the engine can")):
        for out in ("new", "there"):
            more = ("--valid", folder / "data", "-j", "1", "-o", tmp_path / out)
            assert message in mistake(xformc("distill", folder / "engine", tmp_path / text, *more))
            assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "empty", "there"]
            assert not list((tmp_path / "there").iterdir())


def test_samples_of_a_language_model_have_a_seed_each(generates: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "prompts").write_text("one\n\ntwo\n" * 4)
    done = xformc("distill", generates, tmp_path / "prompts", "-o", tmp_path / "texts", "--samples", "2", "--seed", "5",
                   "--max-new-tokens", "6", "-j", "1")  # fmt: skip
    assert done.code == 0, done.err
    with load(generates, threads=1) as engine:
        prompts = [prompt for prompt in ["one", "", "two"] * 4 for _ in range(2)]
        wanted = [found.after(prompt).strip() for prompt, found in zip(
            prompts, engine.generate(prompts, seed=5, max_new_tokens=6), strict=True)]  # fmt: skip
    assert [row["text"] for row in rows(tmp_path / "texts")] == [text for text in wanted if text]


def test_samples_of_translations_have_a_seed_each(tmp_path: Path, xformc: CommandLine) -> None:
    engine, lines = SmallEngines(tmp_path)("search", "portable"), ["two dogs play", "one"] * 5
    (tmp_path / "mono").write_text("".join(f"{line}\n" for line in lines))
    done = xformc("distill", engine, tmp_path / "mono", "-o", tmp_path / "texts", "--samples", "2", "--seed", "5",
                  "--top-k", "4", "-j", "1")  # fmt: skip
    assert done.code == 0, done.err
    with load(engine, threads=1) as loaded:
        drawn = loaded.translate(lines, samples=2, seed=5, top_k=4)
    wanted = [(line, one.text.strip()) for line, several in zip(lines, drawn, strict=True) for one in several]
    found = [(row["source"], row["target"]) for row in rows(tmp_path / "texts")]
    assert found == [pair for pair in wanted if pair[1]] and len({target for _, target in found}) > 2


def test_wrong_options_and_engines_are_refused(
    folder: Path, generates: Path, tmp_path: Path, xformc: CommandLine
) -> None:
    def said(*arguments: str | Path) -> str:
        done = xformc("distill", *arguments, "-o", tmp_path / "no")
        assert done.code == 2 and not (tmp_path / "no").exists()
        return done.err

    engine, mono = folder / "engine", folder / "mono"
    assert "--temperature: no effect on engines for translation" in said(engine, mono, "--temperature", "1")
    assert "--beam-size: no effect on engines for language_model" in said(generates, mono, "--beam-size", "2")
    assert "--beam-size: no effect on samples" in said(engine, mono, "--samples", "2", "--beam-size", "2")
    assert "--seed has no effect" in said(engine, mono, "--seed", "2")
    assert "--tag has no effect" in said(generates, mono, "--tag", "x")
    assert "--languages needs --valid" in said(engine, mono, "--languages", "en-de")
    assert "an engine for tagging; teachers translate" in said(ENGINES / "tag", mono)
    certificate = make_engine(tmp_path / "failed") / "certificate.json"
    text = certificate.read_text()
    certificate.write_text(text.replace("1e-06", "1.5"))
    assert "certificate.json: " in said(tmp_path / "failed", mono)
    manifest = json.loads((tmp_path / "failed" / "engine.json").read_text())
    write_manifest(tmp_path / "failed", {key: manifest[key] for key in manifest if key not in ("files", "checksum")})
    assert "its certificate has not passed" in said(tmp_path / "failed", mono)


def lame(folder: Path) -> Callable[[int], int]:
    """A function whose process is killed at the item 5, for the first time."""

    def square(number: int) -> int:
        marker = folder / "killed"
        if number == 5 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 50:
            raise UserError("50 is too large")
        return number * number

    return square


def test_rows_of_two_workers_on_ray_are_those_of_one_machine(folder: Path, tmp_path: Path) -> None:
    """One of them is killed, and another one has an error."""
    ray: Any = pytest.importorskip("ray", reason="the extra ray is not installed")
    decoding = Decoding(folder / "engine", {"n_best": 2})
    distill([folder / "mono"], decoding, tmp_path / "alone")
    tests = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}  # workers import this file
    ray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False, include_dashboard=False, runtime_env=tests)
    try:
        distill([folder / "mono"], decoding, tmp_path / "cluster", workers=2, spread=on_ray)
        names = ("train.jsonl", "distilled.json")
        alone, cluster = ([(tmp_path / run / name).read_bytes() for name in names] for run in ("alone", "cluster"))
        assert alone == cluster
        assert list(on_ray(iter(range(20)), lame, tmp_path, 0)) == [(number, number**2) for number in range(20)]
        assert (tmp_path / "killed").exists()
        with pytest.raises(UserError, match="50 is too large"):
            list(on_ray([1, 50], lame, tmp_path, 2))
        with pytest.raises(UserError, match="has 2 CPUs for 3 workers"):
            list(on_ray([1], lame, tmp_path, 3))
    finally:
        ray.shutdown()


def test_ray_that_is_not_installed_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xformc: CommandLine
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = xformc("distill", folder / "engine", folder / "mono", "--ray", "-o", tmp_path / "no")
    assert done.code == 2 and "needs the package ray" in done.err and "xformc[ray]" in done.err
    assert not (tmp_path / "no").exists()
