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

from xformc.runtime.session import Session, StoppedError

Result = TypeVar("Result")


def run_once(session: Session, run: Callable[[Session], Result]) -> Result:
    """Return `run(session)`, which a signal whose handler raises ends early. Raises: what either raises.

    A signal whose handler returns ends it, too; then `run` is called once more, in another thread.
    """
    stoppable = session.stoppable()
    if threading.current_thread() is not threading.main_thread():
        return run(stoppable)
    call = _Call(stoppable.stop)
    try:
        return _run_here(call, partial(run, stoppable))
    except StoppedError:
        if not call.signals:
            raise
    # The handler returned, and perhaps does so each second. A thread that waits for another one is not disturbed.
    return _run_elsewhere(session.stoppable(), run)


def _run_here(call: "_Call", run: Callable[[], Result]) -> Result:
    watch = _Watch.running()
    before = None
    outer, watch.call = watch.call, call
    try:
        before = _listen(watch.fileno())
        return run()
    finally:
        if before is not None:
            _listen(before)
        if before not in (None, -1):
            watch.catch_up()
            _tell(outer, before, call.signals)
        watch.call = outer


def _listen(fileno: int) -> int | None:
    """Let signals write their bytes here. Return where they did before, or None where they cannot be heard."""
    try:
        return signal.set_wakeup_fd(fileno, warn_on_full_buffer=False)
    except OSError:  # who listened before has closed it
        return signal.set_wakeup_fd(-1)
    except ValueError:  # the main thread of another interpreter, which runs no handlers
        return None


def _tell(outer: "_Call | None", before: int | None, signals: bytes) -> None:
    """Pass the bytes of signals on: to the call around this one, or to who listened before."""
    if outer is not None:
        outer.signals += signals
    elif before is not None and signals:
        with suppress(OSError):  # its reader may be gone
            os.write(before, signals)


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
        self.stop, self.signals = stop, b""


class _Watch(threading.Thread):
    """The thread that stops the call under way when a signal arrives; each process has one."""

    _running: "_Watch | None" = None
    _MARK = b"\0"
    """The byte of no signal."""

    def __init__(self) -> None:
        super().__init__(name="signals of xformc", daemon=True)
        self.call: _Call | None = None
        self._caught_up = threading.Event()
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)  # a handler of a signal must not wait

    @classmethod
    def running(cls) -> "_Watch":
        """The thread of this process."""
        if cls._running is None:
            made = cls()
            try:
                made.start()
            except BaseException:
                made.close()
                raise
            cls._running = made
        return cls._running

    @classmethod
    def forget(cls) -> None:
        """In a copy of the process: leave its signals to it, not to the call under way in the other one."""
        if cls._running is not None:
            if cls._running.call is not None:
                with suppress(ValueError):
                    signal.set_wakeup_fd(-1)
            cls._running.close()
        cls._running = None

    def close(self) -> None:
        """Close the sockets of a thread that does not run here."""
        self._near.close()
        self._far.close()

    def fileno(self) -> int:
        """Where signals write their bytes."""
        return self._near.fileno()

    def catch_up(self) -> None:
        """Wait until the thread has heard of all signals up to now."""
        self._caught_up.clear()
        with suppress(BlockingIOError):  # so many wait that it will hear of enough
            self._near.send(self._MARK)
            self._caught_up.wait()

    def run(self) -> None:
        """Wait for signals, as long as the process lives."""
        while heard := self._far.recv(64):
            call, signals = self.call, heard.replace(self._MARK, b"")
            if call is not None and signals:
                call.signals += signals
                call.stop()
            if signals != heard:
                self._caught_up.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Watch.forget)
