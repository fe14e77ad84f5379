"""What a command writes to and reads from: links, pipes, modes, and what stays behind when it is ended."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from tiny_run import write_spec

from xformc.commands.text_lines import choose_pace
from xformc.files import atomic_write


def test_a_link_is_followed_and_a_mode_is_kept(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    assert xformc("translate", copy_engine, "-o", link, stdin="one\n").code == 0
    assert link.is_symlink() and target.read_text() == "one\n"
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("translate", ("-i", "IN")),
        ("score", ("OTHER", "IN")),
        ("evaluate", ("IN", "OTHER")),
        ("align", ("OTHER", "IN")),
    ],
)
def test_an_output_is_no_file_that_is_read(
    xformc: CommandLine, copy_engine: Path, tmp_path: Path, command: str, files: tuple[str, ...]
) -> None:
    places = {"IN": tmp_path / "in", "OTHER": tmp_path / "other"}
    for path in places.values():
        path.write_text("one\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for out in (tmp_path / "in", tmp_path / "link"):
        found = mistake(xformc(command, copy_engine, *(places.get(one, one) for one in files), "-o", out))
        assert found == f"{out}: --output is a file that is read\nhint: write to another file"
    assert (tmp_path / "in").read_text() == "one\n"


def test_a_picture_does_not_replace_its_spec(xformc: CommandLine, tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    assert "is a file that is read" in mistake(xformc("draw", spec, "-o", spec))
    assert xformc("draw", spec, "-o", tmp_path / "tiny.svg").code == 0


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with atomic_write(tmp_path / "new") as part:
        part.write_text("x")
        part.chmod(0o600)
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_pipe_is_read_once_and_written_to(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    os.mkfifo(source)
    os.mkfifo(output)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: source.write_text("one\nwords\n" * 20)),
        threading.Thread(target=lambda: found.append(output.read_text())),
    ]
    for thread in threads:
        thread.start()
    assert xformc("translate", copy_engine, "-i", source, "-o", output).code == 0
    for thread in threads:
        thread.join(10)
    assert found == ["one\nwords\n" * 20]
    assert output.is_fifo()


def test_a_pipe_is_not_read_to_choose_the_pace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert choose_pace(tmp_path / "pipe", None, None, 2).workers == 2


def test_a_terminated_command_leaves_nothing_behind(copy_engine: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "source")
    files = ("-i", tmp_path / "source", "-o", tmp_path / "out")
    process = subprocess.Popen([sys.executable, "-m", "xformc", "translate", copy_engine, *files])
    with (tmp_path / "source").open("w"):
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob(".out.*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_named(xformc: CommandLine, copy_engine: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    found = mistake(xformc("translate", copy_engine, "-o", tmp_path / "out", stdin="one\n"))
    tmp_path.chmod(0o700)
    assert found.startswith(f"{tmp_path / 'out'}: cannot be written")


@pytest.fixture
def small_disk() -> Generator[None]:
    """A limit on the size of files stands for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("command", [("translate",), ("draw", "numbers"), ("new", "tagging")])
def test_a_file_that_finds_no_room_is_named(
    xformc: CommandLine, copy_engine: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    out = tmp_path / "new" / "folder" / "x.svg"
    words = (*command, copy_engine) if command == ("translate",) else command
    found = mistake(xformc(*words, "-o", out, stdin="one\n"))
    written = out.with_name("schema.json") if command == ("new", "tagging") else out
    assert found == f"{written}: cannot be written: File too large"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("draw", "numbers"), ("new", "tagging"), ("corpus", "numbers")])
def test_a_folder_that_cannot_be_made_is_named(xformc: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    found = mistake(xformc(*command, "-o", tmp_path / "file" / "x.svg"))
    assert found.startswith(f"{tmp_path / 'file'}") and "cannot be written: " in found and "partial" not in found


def test_a_corpus_is_not_overwritten(xformc: CommandLine, tmp_path: Path) -> None:
    arguments = ("corpus", "numbers", "-o", tmp_path, "--train", "900", "--valid", "5", "--test", "5")
    assert xformc(*arguments).code == 0
    assert "train.tsv: exists already" in mistake(xformc(*arguments))


def test_a_spec_is_found_without_its_ending(
    xformc: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: transformer_base\n")
    monkeypatch.chdir(tmp_path)
    assert xformc("check", "mine").out.startswith("mine: translation")


def test_messages_have_neither_tabs_nor_names_of_python(xformc: CommandLine) -> None:
    for arguments in (("corpus",), ("build", "numbers", "--precision", "int9"), ("build", "numbers", "--target", "x")):
        found = mistake(xformc(*arguments))
        assert "\t" not in found and "Value error" not in found


def test_an_engine_is_not_built_again(xformc: CommandLine, copy_engine: Path) -> None:
    assert "is an engine, not a run" in mistake(xformc("build", copy_engine))
