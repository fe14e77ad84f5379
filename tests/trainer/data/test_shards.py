"""Prepared data: the same examples as texts in memory, whatever happened while it was written."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine
from tiny_model import make_recipe
from tiny_run import SPEC, train_tiny, write_corpus, write_spec

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.trainer.checkpoint import State
from xformc.trainer.data.batches import Batch, make_batch
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, make_tokenizer, read_corpus
from xformc.trainer.data.shards import chunks, reader, writer
from xformc.trainer.data.shards import prepare as preparing
from xformc.trainer.data.shards.manifest import Manifest, read_manifest, write_manifest
from xformc.trainer.data.shards.prepare import Corpus, Note, Preparation, prepare
from xformc.trainer.data.shards.reader import epoch_blocks
from xformc.trainer.data.shards.writer import locked
from xformc.trainer.data.splits import find_pairs
from xformc.trainer.loop import stream
from xformc.trainer.train import Options

LANGUAGE_MODEL = """\
extends: gpt
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 40}
train: {max_length: 8, steps: 4, batch_tokens: 64, tokenizer: {kind: char}, precision: float32}
"""
SHORT = SPEC.replace("steps: 60", "steps: 7")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec, a corpus, and the corpus `prepared`."""
    folder = tmp_path_factory.mktemp("shards")
    write_spec(folder, SHORT)
    write_corpus(folder / "data")
    make(folder, "prepared")
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, files and windows, and a record after each chunk."""
    monkeypatch.setattr(chunks, "ROWS", 16)
    monkeypatch.setattr(writer, "SHARD_BYTES", 1000)
    monkeypatch.setattr(preparing, "RECORD_SECONDS", 0.0)
    monkeypatch.setattr(reader, "WINDOW", 2)


def wanted(*folders: Path, **settings: Any) -> Preparation:
    files = [find_pairs(one) for one in folders]
    corpora = [Corpus(one.name, each.train) for one, each in zip(folders, files, strict=True)]
    return Preparation(corpora, files[0].valid, **settings)


def make(folder: Path, name: str, **settings: Any) -> Path:
    prepare(load_spec(folder / "tiny.yaml"), wanted(folder / "data", **settings), folder / name)
    return folder / name


def examples(folder: Path, data: Path) -> Any:
    """The training examples of a folder."""
    spec = load_spec(folder / "tiny.yaml")
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(data, schema), schema)
    tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
    return encode_corpus(corpus, schema, tokenizer, stages=spec.train.stages).train


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def alone(examples: Any) -> Iterator[Batch]:
    """Each example without padding."""
    return (make_batch(examples, np.array([row])) for row in range(len(examples)))


def trimmed(batches: Iterable[Batch]) -> list[list[int]]:
    return sorted(
        [each for tensor in (*batch.inputs.values(), batch.labels) for each in tensor[row].tolist() if each]
        for batch in batches
        for row in range(len(batch.labels))
    )


def test_prepared_data_of_one_window_trains_as_texts_do_to_the_bit(folder: Path) -> None:
    """Also if it is stopped after its first step, and resumed."""
    train_tiny(folder / "tiny.yaml", folder / "data", folder / "memory", Options())
    for options in (Options(minutes=1e-9), Options(resume=True)):
        train_tiny(folder / "tiny.yaml", folder / "prepared", folder / "shards", options)
    for file in (Path("tokenizer.model"), Path("checkpoints", "00000007", "weights.safetensors")):
        assert (folder / "shards" / file).read_bytes() == (folder / "memory" / file).read_bytes()


@pytest.mark.usefixtures("small")
def test_workers_and_stops_change_no_byte(folder: Path) -> None:
    spec, settings = load_spec(folder / "tiny.yaml"), {"max_ratio": 1.5, "duplicates": True}
    whole, stopped, task = make(folder, "whole", **settings), folder / "stopped", wanted(folder / "data", **settings)

    def stop(note: Note) -> None:
        if note.rows > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(spec, task, stopped, report=stop)
    with (stopped / "blocks.bin").open("ab") as file:
        file.write(b"after the last record")
    for message, call in {
        "already exists": lambda: prepare(spec, task, stopped),
        "its preparation has not ended": lambda: find_corpus(stopped, data_schema(spec)),
        "was begun with other settings": lambda: prepare(spec, replace(task, max_ratio=3.0), stopped, resume=True),
        "the text has changed": lambda: prepare(
            spec, wanted(write_corpus(folder / "other", 15), **settings), stopped, resume=True
        ),
    }.items():
        with pytest.raises(UserError, match=message):
            call()
    with locked(stopped), pytest.raises(UserError, match="another process is preparing this corpus"):
        prepare(spec, task, stopped, resume=True)
    prepare(spec, task, stopped, resume=True)
    assert content(stopped) == content(whole) == content(make(folder, "several", workers=2, **settings))
    assert prepare(spec, task, whole, resume=True) == read_manifest(whole)
    for other in (replace(task, max_ratio=3.0), wanted(write_corpus(folder / "other", 15), **settings)):
        with pytest.raises(UserError, match="was prepared with other settings or from other files"):
            prepare(spec, other, whole, resume=True)
    assert sum(name.startswith("shard") for name in content(whole)) > 1


@pytest.mark.usefixtures("small")
def test_windows_have_every_row_once_and_go_on_anywhere(folder: Path) -> None:
    found, recipe = examples(folder, make(folder, "windows")), make_recipe(batch_tokens=64)
    batches = list(islice(stream(found, recipe, State()), 200))
    first, second = ([batch for position, batch in batches if position[0] == epoch] for epoch in (0, 1))
    assert {window for (epoch, window, _), _ in batches if epoch == 0} == set(range(7))
    assert trimmed(first) == trimmed(alone(examples(folder, folder / "data")))
    assert [one.labels.tolist() for one in first] != [one.labels.tolist() for one in second]
    for index in (0, 3, 17, len(first) - 1, len(first) + 5):
        epoch, window, batch = batches[index][0]
        position, following = next(stream(found, recipe, State(epoch=epoch, window=window, batch=batch)))
        assert position == batches[index + 1][0]
        assert torch.equal(following.labels, batches[index + 1][1].labels)
    assert len(found.sample().labels) == 1
    schema = replace(data_schema(load_spec(folder / "tiny.yaml")), longest=1)
    tokenizer = make_tokenizer(found.prepared, schema, load_spec(folder / "tiny.yaml").train.tokenizer)
    assert tokenizer is not None
    with pytest.raises(UserError, match="every example is longer than 1 positions"):
        list(reader.shard_examples(found.prepared, schema, tokenizer).windows(0, 0))


def test_filters_drop_and_count_rows(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "data" / "valid.tsv", tmp_path)
    rows = [
        "red\trot",
        "red\tred",
        "\trot",
        "blue\tblau",
        "red\trot",
        "one\teins eins eins eins",
        "dog " * 300 + "\tHund",
    ]
    (tmp_path / "train.tsv").write_text("".join(f"{row}\n" for row in rows))
    settings = {"tokenizer": folder / "prepared", "max_ratio": 3.0, "copies": True, "duplicates": True}
    done = prepare(load_spec(folder / "tiny.yaml"), wanted(tmp_path, **settings), tmp_path / "out")
    assert done.parts[0].dropped == {
        "with an empty column": 1,
        "duplicates": 1,
        "with equal sides": 1,
        "longer than 128 positions": 1,
        "above the length ratio": 1,
    }
    assert done.rows == 2
    assert done.parts[0].tokens == {"source": 8, "target": 9}


def test_texts_in_another_language_are_dropped(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "data" / "valid.tsv", tmp_path)
    english, german = "two young men are standing in front of a house", "zwei junge Männer stehen vor einem Haus"
    (tmp_path / "train.tsv").write_text(f"{english}\t{german}\n{german}\t{english}\n{english}\t{english}\n")
    spec, settings = load_spec(folder / "tiny.yaml"), {"tokenizer": folder / "prepared"}
    done = prepare(spec, wanted(tmp_path, languages=("en", "de"), **settings), tmp_path / "out")
    assert (done.rows, done.parts[0].dropped) == (1, {"in another language": 2})
    for languages, message in ((("en",), "a language for source and target"), (("en", "xx"), "unknown language 'xx'")):
        with pytest.raises(UserError, match=message):
            prepare(spec, wanted(tmp_path, languages=languages, **settings), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_tag_stands_before_the_sources_of_its_corpus(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    for name in ("one", "two"):
        write_corpus(tmp_path / name, 12)
    words = ["data", folder / "tiny.yaml", "--set", "train.tokenizer.symbols=[<BT>]"]
    words += ["--data", tmp_path / "one", "--data", tmp_path / "two", "--workers", "1", "-o"]
    for number, tags in enumerate((("--tag", "", "--tag", "<BT>"), ())):
        done = xformc(*words, tmp_path / str(number), *tags)
        assert done.code == 0, done.err
    tagged, plain = (read_manifest(tmp_path / str(number)).parts for number in (0, 1))
    assert tagged[0].tokens == plain[0].tokens and tagged[1].tokens["target"] == plain[1].tokens["target"]
    assert tagged[1].tokens["source"] == plain[1].tokens["source"] + 24, "the tag, and the space before it"
    assert "--tag is a text for each --data" in xformc(*words, tmp_path / "no", "--tag", "x").err


def test_corpora_are_mixed_by_weight_and_temperature(folder: Path, tmp_path: Path, small: None) -> None:
    """The rows of the second corpus, a quarter of those of the first one, are twice as many by temperature."""
    write_corpus(tmp_path / "few", 50)
    task = wanted(folder / "data", tmp_path / "few", temperature=2.0)
    task = replace(task, corpora=[task.corpora[0], replace(task.corpora[1], weight=1.25)])
    done = prepare(load_spec(folder / "tiny.yaml"), task, tmp_path / "out")
    assert [part.repeat for part in done.parts] == [1, 1.25 * 2]
    first, second = (part.blocks for part in done.parts)
    counts = [
        np.bincount(epoch_blocks(done.parts, [1, 2.5], 1, epoch), minlength=first + second) for epoch in range(40)
    ]
    assert all((each[:first] == 1).all() for each in counts)
    assert {int(number) for each in counts for number in each[first:]} == {2, 3}
    assert np.mean(counts, 0)[first:] == pytest.approx(2.5, abs=0.3)
    assert sum(len(each) for _, each in examples(folder, tmp_path / "out").windows(1, 0)) > 200 + 2 * 50
    again = prepare(load_spec(folder / "tiny.yaml"), replace(task, duplicates=True), tmp_path / "unique")
    assert again.parts[1].rows == 0, "the second corpus begins like the first one"


def test_curriculum_changes_the_mix_at_its_steps(folder: Path, tmp_path: Path, small: None) -> None:
    """The stream is the same from any step on; a stage begins an epoch, and its corpora have its weights."""
    write_corpus(tmp_path / "few", 50)
    prepare(load_spec(folder / "tiny.yaml"), wanted(folder / "data", tmp_path / "few"), tmp_path / "out")
    stages = "stages: [{steps: 3, weights: {data: 0}}, {steps: 2, weights: {data: 0.2, few: 0}}]"
    spec = load_spec(write_spec(tmp_path, SHORT.replace("train:\n", f"train:\n  {stages}\n")))
    assert load_spec(write_spec(tmp_path, spec.resolved_yaml())).resolved_yaml() == spec.resolved_yaml()
    data, recipe = examples(tmp_path, tmp_path / "out"), replace(make_recipe(), batch_tokens=64, accumulate=2)

    def taken(state: State, count: int) -> list[tuple[tuple[int, int, int], list[list[int]]]]:
        batches = islice(stream(data, recipe, state), count)
        return [(position, batch.inputs["target"].tolist()) for position, batch in batches]

    whole = taken(State(), 24)
    assert [position for (position, _), index in zip(whole, range(12), strict=False) if index in (0, 6, 10)] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
    ]
    for step in range(1, 12):
        epoch, window, batch = whole[2 * step - 1][0]
        assert taken(State(step=step, epoch=epoch, window=window, batch=batch), 24 - 2 * step) == whole[2 * step :]
    kept = [[sum(blocks) for blocks in _of_parts(part.data, 40)] for part in data.parts]
    assert kept == [[0, 40], [pytest.approx(8, abs=6), 0], [40, 40]]
    for weights, message in (("other: 1", "no corpus is called 'other'"), ("data: 0, few: 0", "leaves no corpus")):
        write_spec(tmp_path, SHORT.replace("train:\n", f"train:\n  stages: [{{steps: 3, weights: {{{weights}}}}}]\n"))
        with pytest.raises(UserError, match=message):
            examples(tmp_path, tmp_path / "out")
    with pytest.raises(UserError, match=r"train\.stages weigh the corpora of prepared data"):
        examples(tmp_path, folder / "data")


def _of_parts(data: reader.ShardExamples, epochs: int) -> list[list[int]]:
    """How often each epoch has the first block of each corpus."""
    parts, counts = data.prepared.manifest.parts, list[list[int]]()
    for number in range(len(parts)):
        first = sum(part.blocks for part in parts[:number])
        drawn = (epoch_blocks(parts, data.repeats, 1, epoch) for epoch in range(epochs))
        counts.append([int((blocks == first).sum()) for blocks in drawn])
    return counts


def change(folder: Path, **changes: Any) -> Manifest:
    changed = replace(read_manifest(folder), **changes)
    write_manifest(changed, folder)
    return changed


def test_damaged_files_are_errors(folder: Path, tmp_path: Path) -> None:
    spec, schema = load_spec(folder / "tiny.yaml"), data_schema(load_spec(folder / "tiny.yaml"))
    for file, damage, message in (
        ("shard-00000.bin", lambda old: old[:-1], r"shard-00000.bin: has [\d,]+ bytes; manifest.json says"),
        ("shard-00000.bin", lambda old: old[:999] + b"?" + old[1000:], "the block at byte 0 is not what was written"),
        ("blocks.bin", lambda old: b"?" + old[1:], "blocks.bin: is not what was written"),
        ("tokenizer.model", lambda old: old[:-1] + b"?", "tokenizer.model: is not what was written"),
        ("valid.source", None, "valid.source: is missing"),
        ("manifest.json", lambda old: old[:200], "not the manifest of a prepared corpus"),
        ("manifest.json", lambda old: old.replace(b'"format": 1', b'"format": 2'), "another version of xformc"),
        ("manifest.json", lambda old: old.replace(b'"rows": ', b'"rows": -'), "not the manifest"),
        ("manifest.json", lambda old: old.replace(b'"valid.source"', b'"../valid"'), "not the manifest"),
    ):
        data = tmp_path / "damaged"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(folder / "prepared", data)
        if damage is None:
            (data / file).unlink()
        else:
            changed = damage((data / file).read_bytes())
            assert changed != (data / file).read_bytes()
            (data / file).write_bytes(changed)
        with pytest.raises(UserError, match=message):
            next(examples(folder, data).windows(1, 0))
    for text, message in (
        ("extends: transformer_base\nsizes: {vocabulary: 50}", "has 60 pieces; the spec's vocabulary is 50"),
        ("extends: gpt\n", "is prepared for translation of source, target; this spec is language_model of text"),
        ("extends: text_classifier\n", "prepared for translation, language models and objectives; this task is class"),
    ):
        (tmp_path / "other.yaml").write_text(text)
        other = data_schema(load_spec(tmp_path / "other.yaml"))
        with pytest.raises(UserError, match=message):
            make_tokenizer(
                read_corpus(find_corpus(folder / "prepared", other), other).train, other, spec.train.tokenizer
            )
    with pytest.raises(UserError, match="--languages en-de has no effect on prepared data"):
        find_corpus(folder / "prepared", schema, "en-de")


def test_other_vocabulary_is_an_error(folder: Path, tmp_path: Path) -> None:
    """That of the run to start from, trained on other text."""
    write_corpus(tmp_path / "data", 30)
    train_tiny(
        write_spec(tmp_path, SHORT.replace("vocabulary: 60", "vocabulary: 40")),
        tmp_path / "data",
        tmp_path / "run",
        Options(minutes=1e-9),
    )
    with pytest.raises(UserError, match="the ids of 'source' are those of another vocabulary than the run's") as caught:
        train_tiny(folder / "tiny.yaml", folder / "prepared", tmp_path / "new", Options(start=tmp_path / "run"))
    assert caught.value.hint == "prepare it with the run's: xformc data --tokenizer RUN"
    assert not (tmp_path / "new").exists()


UNGUARDED = """\
import sys
from xformc.cli import main
sys.argv = ["xformc", "data", "tiny.yaml", "--data", "data", "-o", "ended", "-j", "2"]
main()
"""


def test_processes_that_end_at_once_are_an_error(folder: Path) -> None:
    """A script without a guard runs again in each process, which then ends before it has read its work."""
    (folder / "script.py").write_text(UNGUARDED)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "error: one of the processes was killed" in done.stderr


@pytest.mark.usefixtures("small")
def test_full_disk_is_an_error_and_resumes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files stands for the disk."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 1 << 30)
    spec, task, limits = (
        load_spec(folder / "tiny.yaml"),
        wanted(folder / "data"),
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    try:
        with pytest.raises(UserError, match="full: cannot be written: File too large") as caught:
            prepare(
                spec,
                task,
                folder / "full",
                report=lambda note: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1])),
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.hint == "free some space, then continue with --resume"
    prepare(spec, task, folder / "full", resume=True)
    assert content(folder / "full") == content(make(folder, "free"))


def write_lines(folder: Path, valid: int, least: int) -> None:
    """60 lines of training text and some of validation text, of at least so many pairs of words."""
    folder.mkdir()
    for name, count in (("train", 60), ("valid", valid)):
        sizes = [line % 9 + least for line in range(count)]
        lines = [" ".join(f"{(7 * line + at) % 11} and" for at in range(size)) for line, size in enumerate(sizes)]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_language_model_trains_on_prepared_texts(tmp_path: Path, xformc: CommandLine) -> None:
    """By the commands; the texts are cut into parts, and the scores are those of a run on the texts."""
    (tmp_path / "lm.yaml").write_text(LANGUAGE_MODEL)
    write_lines(tmp_path / "data", valid=5, least=1)
    done = xformc(
        "data", tmp_path / "lm.yaml", "--data", tmp_path / "data", "-o", tmp_path / "prepared", "--workers", "1"
    )
    assert (done.code, done.err) == (0, "")
    first, last = done.out.splitlines()
    assert first.startswith(f"{tmp_path / 'data'}: 60 examples, ") and first.endswith(" tokens of text")
    assert last == f"{tmp_path / 'prepared'}: 60 examples"
    runs = [
        xformc("train", tmp_path / "lm.yaml", "--data", tmp_path / name, "-o", tmp_path / f"run-{name}")
        for name in ("data", "prepared")
    ]
    assert [run.code for run in runs] == [0, 0]
    assert "training: 60 examples, prepared" in runs[1].err
    of_texts, of_shards = ([line for line in run.err.splitlines() if "perplexity" in line] for run in runs)
    assert of_texts == of_shards and of_texts
    wrong = xformc("data", "text_classifier", "--data", tmp_path / "data", "-o", tmp_path / "no")
    assert (
        wrong.code == 2
        and "prepared for translation, language models and objectives; this task is classification" in wrong.err
    )
    wrong = xformc(
        "data",
        tmp_path / "lm.yaml",
        "--data",
        tmp_path / "data",
        "--weight",
        "1",
        "--weight",
        "2",
        "-o",
        tmp_path / "no",
    )
    assert wrong.code == 2 and "--weight is a number above 0 for each --data, in order" in wrong.err


MASKED = """\
extends: masked_language_model
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 30}
train: {max_length: 12, steps: 6, batch_tokens: 96, checkpoint: {every_steps: 3, every_minutes: null}, average: 1}
"""
SPANS = """\
extends: span_corruption
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 36}
train: {objective: {spans: {sentinels: 4}}, max_length: 12, steps: 6, batch_tokens: 96, average: 1}
"""


def write_texts(folder: Path, text: str) -> Any:
    """A spec with an objective, and its prepared corpus."""
    (folder / "tiny.yaml").write_text(text)
    write_lines(folder / "data", valid=8, least=2)
    spec = load_spec(folder / "tiny.yaml")
    schema = data_schema(spec)
    files = find_corpus(folder / "data", schema)
    prepare(spec, Preparation([Corpus("one", files.train)], files.valid), folder / "prepared")
    return spec


@pytest.mark.parametrize("text", [MASKED, SPANS], ids=["masked", "spans"])
def test_objectives_have_new_noise_in_each_epoch_of_prepared_texts(tmp_path: Path, text: str) -> None:
    """And a run that is stopped goes on to the bit."""
    write_texts(tmp_path, text)
    data = examples(tmp_path, tmp_path / "prepared")

    def rows(seed: int, epoch: int) -> list[list[int]]:
        ((_, found),) = data.windows(seed, epoch)
        return trimmed(alone(found))

    assert rows(1, 0) == rows(1, 0) != rows(1, 1)
    assert len(rows(1, 0)) >= len(data) == 60, "long texts are parts"
    for run, options in (("whole", Options()), ("part", Options(minutes=1e-9)), ("part", Options(resume=True))):
        train_tiny(tmp_path / "tiny.yaml", tmp_path / "prepared", tmp_path / run, options)
    files = [tmp_path / run / "weights.safetensors" for run in ("whole", "part")]
    assert files[0].read_bytes() == files[1].read_bytes()
    (tmp_path / "other.yaml").write_text("extends: gpt\n")
    with pytest.raises(UserError, match="is prepared for plain text of text; this spec is language_model of text"):
        other = data_schema(load_spec(tmp_path / "other.yaml"))
        read_corpus(find_corpus(tmp_path / "prepared", other), other)


def test_prepared_texts_need_the_tokens_of_the_objective(tmp_path: Path) -> None:
    spec = write_texts(tmp_path, SPANS)
    masked = load_spec(tmp_path / "tiny.yaml", ["train.objective={denoise: {}}"])
    schema = data_schema(masked)
    corpus = read_corpus(find_corpus(tmp_path / "prepared", schema), schema)
    tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
    with pytest.raises(UserError, match="the tokenizer lacks <mask>, which this objective needs"):
        encode_corpus(corpus, schema, tokenizer)


def test_texts_without_a_row_are_an_error(folder: Path, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 4)
    for path in data.glob("train.*"):
        path.write_text("\n\n")
    with pytest.raises(UserError, match="no row is left"):
        prepare(load_spec(folder / "tiny.yaml"), wanted(data), tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing was written that would not be written again"


def test_copies_of_a_text_in_an_epoch_have_noise_of_their_own(tmp_path: Path) -> None:
    spec = write_texts(tmp_path, MASKED)
    files = find_corpus(tmp_path / "data", data_schema(spec))
    prepare(spec, Preparation([Corpus("one", files.train, 3.0)], files.valid), tmp_path / "three")
    ((_, found),) = examples(tmp_path, tmp_path / "three").windows(1, 0)
    rows = {str(row) for row in trimmed(alone(found))}
    assert len(rows) > 0.8 * len(found) > 2 * 60
    assert reader._turns(np.array([3, 1, 3, 3, 0, 1])).tolist() == [0, 0, 1, 2, 0, 1]  # pyright: ignore[reportPrivateUsage]


def test_a_first_block_without_a_fitting_example_is_passed_over(tmp_path: Path, small: None) -> None:
    """A text of one word has no prefix."""
    write_texts(tmp_path, SPANS)
    (tmp_path / "data" / "train.txt").write_text("and\n" * 64 + "and and 7 and\n" * 64)
    spec = load_spec(
        tmp_path / "tiny.yaml", ["sizes.vocabulary=9", "train.tokenizer.kind=word", "train.objective={prefix: {}}"]
    )
    files = find_corpus(tmp_path / "data", data_schema(spec))
    prepare(spec, Preparation([Corpus("one", files.train)], files.valid), tmp_path / "short")
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(tmp_path / "short", schema), schema)
    found: Any = encode_corpus(corpus, schema, make_tokenizer(corpus.train, schema, spec.train.tokenizer)).train
    assert len(found.prepared.index) > 1 and len(found.sample().labels) == 1


def test_filters_of_pairs_and_tokenizers_without_the_objectives_tokens_are_refused(tmp_path: Path) -> None:
    spec = write_texts(tmp_path, SPANS)
    files = find_corpus(tmp_path / "data", data_schema(spec))
    task = Preparation([Corpus("one", files.train)], files.valid)
    for settings, message in (
        ({"copies": True}, "--drop-copies compares the sides of pairs, and plain text has one"),
        ({"max_ratio": 2.0}, "--max-ratio compares the sides of pairs, and plain text has one"),
    ):
        changed: Any = replace(task, **settings)
        with pytest.raises(UserError, match=message):
            prepare(spec, changed, tmp_path / "no")
    masked = load_spec(tmp_path / "tiny.yaml", ["train.objective={denoise: {}}"])
    with pytest.raises(UserError, match="the tokenizer lacks <mask>"):
        prepare(masked, replace(task, tokenizer=tmp_path / "prepared"), tmp_path / "no")
    assert not (tmp_path / "no").exists()
