"""Calls in the caller's thread that a signal can end.

Python runs the handlers of signals in the main thread, between two of its instructions, and a call of ONNX Runtime is
one instruction. So while such a call runs there, the byte that each signal writes (`signal.set_wakeup_fd`) wakes
another thread, which stops the call; then the handler runs. A thread for each call would take half a millisecond.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from xformc.errors import UserError
from xformc.runtime.session import Session

Result = TypeVar("Result")


def run_once(session: Session, run: Callable[[Session], Result]) -> Result:
    """Return `run(session)`, which a signal whose handler raises ends early. Raises: what either raises."""
    try:
        return _run_here(session.stoppable(), run)
    except _StoppedError:
        # The handler returned, and perhaps does so each second. A thread that waits for another one is not disturbed.
        return _run_elsewhere(session.stoppable(), run)


class _StoppedError(Exception):
    """A signal stopped a call, and its handler raised nothing."""


def _run_here(session: Session, run: Callable[[Session], Result]) -> Result:
    if threading.current_thread() is not threading.main_thread():
        return run(session)
    watch = _Watch.running()
    try:
        before = signal.set_wakeup_fd(watch.fileno(), warn_on_full_buffer=False)
    except ValueError:  # the main thread of another interpreter, which runs no handlers
        return run(session)
    call = _Call(session.stop)
    outer, watch.call = watch.call, call
    try:
        return run(session)
    except UserError as error:
        if call.stopped:
            raise _StoppedError from error
        raise
    finally:
        signal.set_wakeup_fd(before)
        if before not in (-1, watch.fileno()):
            watch.catch_up()
            with suppress(OSError):  # its reader may be gone
                os.write(before, call.signals)
        watch.call = outer


def _run_elsewhere(session: Session, run: Callable[[Session], Result]) -> Result:
    pool = ThreadPoolExecutor(1, thread_name_prefix="xformc")
    try:
        return pool.submit(partial(run, session)).result()
    finally:
        session.stop()
        pool.shutdown()


class _Call:
    """A call under way, and the bytes of the signals that arrived meanwhile."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop, self.stopped, self.signals = stop, False, b""


class _Watch(threading.Thread):
    """The thread that stops the call under way when a signal arrives; each process has one."""

    _running: "_Watch | None" = None
    _MARK = b"\0"
    """The byte of no signal."""

    def __init__(self) -> None:
        super().__init__(name="signals of xformc", daemon=True)
        self.call: _Call | None = None
        self._process, self._caught_up = os.getpid(), threading.Event()
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)  # a handler of a signal must not wait

    @classmethod
    def running(cls) -> "_Watch":
        """The thread of this process, which may be a copy of one that had its own."""
        if cls._running is None or cls._running._process != os.getpid():
            cls._running = cls()
            cls._running.start()
        return cls._running

    def fileno(self) -> int:
        """Where signals write their bytes."""
        return self._near.fileno()

    def catch_up(self) -> None:
        """Wait until the thread has heard of all signals up to now."""
        self._caught_up.clear()
        self._near.send(self._MARK)
        self._caught_up.wait()

    def run(self) -> None:
        """Wait for signals, as long as the process lives."""
        while heard := self._far.recv(64):
            call, signals = self.call, heard.replace(self._MARK, b"")
            if call is not None and signals:
                call.stopped, call.signals = True, call.signals + signals
                call.stop()
            if signals != heard:
                self._caught_up.set()
