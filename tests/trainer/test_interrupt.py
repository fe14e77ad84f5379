"""Signals during training."""

import signal
import threading
import time
from collections.abc import Generator

import pytest

from xformc.trainer.interrupt import REPEAT_SECONDS, Interrupt, interruptible


@pytest.fixture(autouse=True)
def usual() -> Generator[None]:
    """An interrupt raises KeyboardInterrupt, also where the tests ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_first_signal_is_kept_and_a_later_one_acts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupt:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # a launcher repeats it
        assert interrupt.number == signal.SIGINT
        time.sleep(REPEAT_SECONDS + 0.1)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_end_is_that_of_the_signal() -> None:
    interrupt = Interrupt()
    for number, code in ((None, 143), (signal.SIGTERM, 143)):
        interrupt.number = number
        with pytest.raises(SystemExit) as caught:
            interrupt.leave()
        assert caught.value.code == code
    interrupt.number = signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        interrupt.leave()


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked


def test_other_threads_keep_no_signals() -> None:
    found = list[bool]()

    def work() -> None:
        with interruptible() as interrupt:
            found.append(interrupt.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
