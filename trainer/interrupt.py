"""Signals that end training after a step, when a checkpoint has been written."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_SECONDS = 1.0
"""A signal that comes again so soon is the same one: a terminal and a launcher may both send it."""


class Interrupt:
    """The signal that asks training to end; `number` is None before it comes."""

    number: int | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    def leave(self) -> NoReturn:
        """End as the signal would have. Raises: KeyboardInterrupt for SIGINT, else SystemExit with 128 + its number."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + (self.number or signal.SIGTERM))  # another process may have got it


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Keep SIGINT and SIGTERM for the time of the block; a second one does at once what it did before the block.

    Only the main thread gets signals; in another one nothing is changed, and none is kept.
    """
    interrupt, since = Interrupt(), 0.0
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {one: signal.getsignal(one) for one in SIGNALS}

    def keep(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if not interrupt.asked:
            interrupt.number, since = number, time.monotonic()
        elif time.monotonic() - since > REPEAT_SECONDS:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    kept = [one for one, handler in before.items() if handler is not signal.SIG_IGN]
    for one in kept:
        signal.signal(one, keep)
    try:
        yield interrupt
    finally:
        for one in kept:
            signal.signal(one, before[one])
