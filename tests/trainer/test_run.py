import dataclasses
import json
from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary
from xformc.trainer.run import Identity, check_free, create_run, is_run, recorded_precision, reopen_run

IDENTITY = Identity("spec", "train", "valid", seed=1, precision="float32", compile=False)
SPEC = "name: a\nsizes:\n  d_model: 8\n"


def make_run(out: Path) -> Path:
    vocabulary = Vocabulary(b"model")
    create_run(out, SPEC, IDENTITY, Tokenizer({"source": vocabulary, "target": vocabulary}), {"labels": ["no", "yes"]})
    return out


def test_create_run_writes_the_whole_folder(tmp_path: Path) -> None:
    out = make_run(tmp_path / "deep" / "run")
    assert {path.name for path in out.iterdir()} == {
        "labels.txt",
        "metrics.jsonl",
        "run.json",
        "spec.yaml",
        "tokenizer.model",
    }
    assert (out / "labels.txt").read_text() == "no\nyes\n"
    assert (out / "spec.yaml").read_text() == SPEC
    assert recorded_precision(out) == "float32"
    reopen_run(out, SPEC, IDENTITY)


def test_create_run_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        make_run(tmp_path / "file" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_create_run_never_replaces_a_run(tmp_path: Path) -> None:
    """Two processes may find the folder free at the same time."""
    out = make_run(tmp_path / "run")
    (out / "checkpoints").mkdir()
    with pytest.raises(UserError, match="another process is training this run"):
        make_run(out)
    assert (out / "checkpoints").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_check_free_refuses_what_is_there(tmp_path: Path) -> None:
    check_free(tmp_path / "absent")
    check_free(tmp_path)
    out = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="already exists") as caught:
        check_free(out)
    assert "--resume" in (caught.value.hint or "")
    with pytest.raises(UserError, match="already exists"):
        check_free(out / "spec.yaml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_sha256": "x"}, "the training data has changed"),
        ({"valid_sha256": "x"}, "the validation data has changed"),
        ({"seed": 2}, "seed was 1 and is now 2"),
        ({"compile": True}, "compile was False and is now True"),
        ({"start_sha256": "x"}, "it began without --start, and is now with it"),
        ({"seed": 2, "train_sha256": "x"}, "the training data has changed; seed was 1 and is now 2"),
    ],
)
def test_reopen_run_says_what_has_changed(tmp_path: Path, change: dict[str, object], message: str) -> None:
    out = make_run(tmp_path / "run")
    with pytest.raises(UserError) as caught:
        reopen_run(out, SPEC, dataclasses.replace(IDENTITY, **change))
    assert caught.value.message == f"cannot continue this run: {message}"


def test_reopen_run_names_the_options_that_are_missing(tmp_path: Path) -> None:
    begun = dataclasses.replace(IDENTITY, start_sha256="x", tokenizer_sha256="y")
    create_run(tmp_path / "run", SPEC, begun, None, {})
    with pytest.raises(UserError) as caught:
        reopen_run(tmp_path / "run", SPEC, IDENTITY)
    without = "it began with --start, and is now without it; it began with --tokenizer, and is now without it"
    assert caught.value.message == f"cannot continue this run: {without}"
    with pytest.raises(UserError, match="the weights that it began with have changed; the tokenizer has changed"):
        reopen_run(tmp_path / "run", SPEC, dataclasses.replace(begun, start_sha256="z", tokenizer_sha256="z"))


def test_reopen_run_compares_the_tokenizer(tmp_path: Path) -> None:
    out = make_run(tmp_path / "run")
    (out / "tokenizer.model").write_bytes(b"other")
    with pytest.raises(UserError, match="the run's tokenizer has changed") as caught:
        reopen_run(out, SPEC, IDENTITY)
    assert caught.value.place == str(out / "tokenizer.model")


def test_reopen_run_shows_the_first_changed_line_of_the_spec(tmp_path: Path) -> None:
    out = make_run(tmp_path / "run")
    with pytest.raises(UserError) as caught:
        reopen_run(out, SPEC.replace("8", "16"), dataclasses.replace(IDENTITY, spec_sha256="x"))
    assert caught.value.message.splitlines() == [
        "cannot continue this run: the spec has changed",
        "  was: d_model: 8",
        "  now: d_model: 16",
    ]


@pytest.mark.parametrize("content", [None, "{", json.dumps({"seed": 1}), "[]", "null", "[" * 100_000])
def test_reopen_run_refuses_another_folder(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "other").write_text("")
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert is_run(tmp_path)
    with pytest.raises(UserError, match="not a run"):
        reopen_run(tmp_path, SPEC, IDENTITY)
