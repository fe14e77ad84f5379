"""A call in the main thread ends when a signal's handler raises, and goes on when it returns."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from xformc.errors import UserError
from xformc.runtime import interrupts, load
from xformc.runtime.interrupts import run_once
from xformc.runtime.session import StoppedError

SOON, LONG = 0.05, 20.0


class Waits:
    """A session whose calls run until they are stopped, or for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.stopped, self.threads = seconds, threading.Event(), list[threading.Thread]()

    def stoppable(self) -> "Waits":
        same = Waits(self.seconds)
        same.threads = self.threads
        return same

    def stop(self) -> None:
        self.stopped.set()

    def run(self) -> str:
        self.threads.append(threading.current_thread())
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            if self.stopped.is_set():
                raise StoppedError("terminated")
        return "done"


def call(seconds: float) -> tuple[str, list[threading.Thread]]:
    session = Waits(seconds)
    return run_once(cast(Any, session), lambda one: cast(Waits, one).run()), session.threads


class TooLateError(Exception):
    pass


def too_late(*_: object) -> None:
    raise TooLateError


@contextmanager
def alarm(handler: Any, seconds: float, again: float = 0) -> Generator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_call_runs_in_the_thread_of_its_caller() -> None:
    assert call(0) == ("done", [threading.main_thread()])


@pytest.mark.parametrize("method", ["translate", "search"])
def test_a_handler_that_raises_ends_a_model_that_never_ends(endless_engine: Path, method: str) -> None:
    engine = load(endless_engine)
    began = time.monotonic()
    with pytest.raises(TooLateError), alarm(too_late, SOON):
        if method == "translate":
            engine.translate(["hello"])
        else:
            engine.search(np.array([[5, 3]]))
    assert time.monotonic() - began < LONG
    assert signal.set_wakeup_fd(-1) == -1


def test_after_a_handler_that_returns_the_call_is_made_again_elsewhere(copy_engine: Path) -> None:
    """Another thread is not disturbed, however often the handler runs."""
    ran = list[int]()
    with alarm(lambda *_: ran.append(1), SOON, 0.001):
        found, threads = call(0.5)
    assert (found, threads[0], len(threads)) == ("done", threading.main_thread(), 2)
    assert threads[1] is not threading.main_thread()
    assert len(ran) > 5
    engine = load(copy_engine)
    with alarm(lambda *_: ran.append(1), 0.0001, 0.0001):
        for _ in range(20):
            assert engine.translate(["hello"]) == engine.translate(["hello"])


def test_an_error_of_the_call_itself_is_raised() -> None:
    def run(_: object) -> str:
        raise UserError("broken")

    with pytest.raises(UserError, match="broken"):
        run_once(cast(Any, Waits(0)), run)


@pytest.mark.parametrize("inside", [False, True])
def test_who_listened_to_signals_before_hears_of_them(inside: bool) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    before = signal.set_wakeup_fd(near.fileno())
    try:
        if inside:
            assert run_once(cast(Any, Waits(0)), ends_inside) == "the outer one"
        else:
            ends_inside()
        far.settimeout(LONG)
        assert far.recv(8) == bytes([signal.SIGALRM])
        assert signal.set_wakeup_fd(near.fileno()) == near.fileno()
    finally:
        signal.set_wakeup_fd(before)
        near.close()
        far.close()


def ends_inside(_: object = None) -> str:
    with pytest.raises(TooLateError), alarm(too_late, SOON):
        call(LONG)
    return "the outer one"


def test_a_call_inside_a_call_ends_alone() -> None:
    assert run_once(cast(Any, Waits(0)), ends_inside) == "the outer one"


def test_who_listened_before_may_have_closed_its_socket() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    before = signal.set_wakeup_fd(near.fileno())

    def run(_: object) -> str:
        near.close()
        return "done"

    assert run_once(cast(Any, Waits(0)), run) == "done"
    assert signal.set_wakeup_fd(before) == -1
    far.close()


def test_the_error_of_a_handler_is_raised_whatever_it_is(endless_engine: Path) -> None:
    """Also one that the call itself could have."""

    def refuse(*_: object) -> None:
        raise UserError("too late")

    engine = load(endless_engine)
    with pytest.raises(UserError, match=r"^too late$"), alarm(refuse, SOON):
        engine.translate(["hello"])


def test_a_thread_that_did_not_start_is_started_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(interrupts._Watch, "_running", None)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(threading.Thread, "start", full)
        call(0)
    assert call(0)[0] == "done"
    with pytest.raises(TooLateError), alarm(too_late, SOON):
        call(LONG)


def test_threads_that_get_no_signals_call_as_they_are() -> None:
    found = list[Any]()
    thread = threading.Thread(target=lambda: found.append(call(0)))
    thread.start()
    thread.join()
    assert found == [("done", [thread])]


FORKS = """
import os, signal, sys
from tests.runtime.test_interrupts import TooLateError, alarm, call, too_late

assert call(0)[0] == "done"
child = os.fork()
if child == 0:
    try:
        with alarm(too_late, 0.05):
            call(20)
    except TooLateError:
        os._exit(7)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_copy_of_the_process_hears_its_own_signals() -> None:
    assert subprocess.run([sys.executable, "-c", FORKS], timeout=60, check=False).returncode == 7
