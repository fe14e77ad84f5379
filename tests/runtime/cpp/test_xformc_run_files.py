"""What xformc-run writes to and reads from: links, pipes, full disks, and what stays behind when it is ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import finish, limit_file_size, listing, mistake

from tests.runtime.cpp.compiled import environment, run


def start(*command: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a program, which an interrupt ends also where the tests ignore it."""
    options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options}
    return subprocess.Popen[bytes](command, stderr=subprocess.PIPE, env=environment(), **options)


def test_a_link_is_followed_and_a_mode_is_kept(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    assert run(xformc_run, copy_engine, "-o", link, stdin="one\n").code == 0
    assert link.is_symlink() and target.read_text() == "one\n"
    assert target.stat().st_mode & 0o777 == 0o600
    assert listing(tmp_path) == ["link", "target"]


def test_a_folder_is_no_output(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    assert (
        mistake(run(xformc_run, copy_engine, "-o", tmp_path)) == f"{tmp_path}: is a folder\nhint: give --output a file"
    )
    (tmp_path / "file").touch()
    assert "file/out: cannot be written: Not a directory" in mistake(
        run(xformc_run, copy_engine, "-o", tmp_path / "file" / "out")
    )


@pytest.mark.parametrize("option", ["-i", "--align-with"])
def test_a_file_that_is_read_is_not_written(xformc_run: Path, copy_engine: Path, tmp_path: Path, option: str) -> None:
    file, link = tmp_path / "texts", tmp_path / "link"
    file.write_text("one\n")
    link.symlink_to(file)
    found = mistake(run(xformc_run, copy_engine, option, file, "-o", link))
    assert found == f"{link}: --output is a file that is read\nhint: write to another file"
    assert file.read_text() == "one\n"


def test_pipes_are_read_and_written_to(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    os.mkfifo(source)
    os.mkfifo(output)
    process = start(xformc_run, copy_engine, "-i", source, "-o", output)
    source.write_text("one\nwords\n" * 20)
    assert output.read_text() == "one\nwords\n" * 20
    assert finish(process) == (0, "")
    assert output.is_fifo()


def test_each_line_is_answered_before_the_next_is_read(xformc_run: Path, copy_engine: Path) -> None:
    process = start(xformc_run, copy_engine, "--window", "1", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    for line in (b"one\n", b"two dogs\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line
    assert finish(process) == (0, "")


def test_an_error_leaves_no_file(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    assert run(xformc_run, copy_engine, "-o", tmp_path / "out", stdin=b"one\n\xff\n").code == 2
    assert listing(tmp_path) == []


@pytest.mark.parametrize(("number", "code", "message"), [("SIGTERM", 143, ""), ("SIGINT", 130, "interrupted\n")])
def test_a_signal_leaves_nothing_behind(
    xformc_run: Path, endless_engine: Path, tmp_path: Path, number: str, code: int, message: str
) -> None:
    process = start(xformc_run, endless_engine, "-o", tmp_path / "out", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.close()
    process.stdin = None
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".out.*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.Signals[number])
    assert finish(process) == (code, message)
    assert listing(tmp_path) == []


@pytest.mark.parametrize("options", [("--window", "1"), ("--workers", "2"), ("--help",)])
def test_a_reader_that_has_gone_ends_quietly(xformc_run: Path, copy_engine: Path, options: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(xformc_run, copy_engine, *options, stdin=subprocess.PIPE, stdout=writer)
    os.close(writer)
    assert finish(process, b"one\n" * 10) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_mistake(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    for options in ((copy_engine,), ("--help",), ("--version",)):
        with open("/dev/full", "wb") as full:
            process = start(xformc_run, *options, stdin=subprocess.PIPE, stdout=full)
            assert finish(process, b"one\n" * 10) == (2, "error: No space left on device\n")
    assert mistake(run(xformc_run, copy_engine, "-o", "/dev/full", stdin="one\n")) == "No space left on device"
    with open("/dev/full", "wb") as full:
        assert subprocess.run([xformc_run, tmp_path], stderr=full, check=False, timeout=60).returncode == 2
    limited = start(
        xformc_run, copy_engine, "-o", tmp_path / "out", stdin=subprocess.PIPE, preexec_fn=limit_file_size(2000)
    )
    assert finish(limited, b"one two three\n" * 1000) == (2, "error: File too large\n")
    assert listing(tmp_path) == []


def test_closed_streams_are_empty_ones(xformc_run: Path, copy_engine: Path) -> None:
    for arguments, code in ((f"{copy_engine} <&-", 0), ("--help >&-", 0), ("none 2>&-", 2)):
        done = subprocess.run(
            f"{xformc_run} {arguments}", shell=True, capture_output=True, check=False, timeout=60, env=environment()
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_standard_input_may_be_unreadable(xformc_run: Path, copy_engine: Path, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert finish(start(xformc_run, copy_engine, stdin=folder)) == (2, "error: Is a directory\n")
    finally:
        os.close(folder)
    assert mistake(run(xformc_run, copy_engine, "-i", tmp_path)) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_message_cannot_steer_the_terminal(xformc_run: Path) -> None:
    found = mistake(run(xformc_run, "\x1b[2Jgrößer\r\t\u202e"))
    assert found.startswith("\\x1b[2Jgrößer\\r\\t\\u202e: no such folder\nhint: ")
    broken = run(xformc_run, os.fsdecode(b"n\xffo"))
    assert broken.err.startswith("error: n\\udcffo: no such folder")


def test_the_memory_does_not_depend_on_the_number_of_lines(xformc_run: Path, copy_engine: Path) -> None:
    def peak(lines: int) -> int:
        words = [str(xformc_run), str(copy_engine), "--window", "64"]
        command = (
            f"import resource, subprocess; subprocess.run({words!r}, input=b'two dogs play in the snow\\n' * {lines}, "
            "stdout=subprocess.DEVNULL, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        return int(run(sys.executable, "-c", command).out)

    assert peak(20_000) < peak(1000) + 8 * 1024  # KiB; 20,000 lines and their results are 3 MB
