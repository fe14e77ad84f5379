"""The start of the command line: `python -m xformc` is `xformc`."""

import signal
import sys
from collections.abc import Iterator
from types import FrameType

AGAIN = 0.05
"""The seconds after which an interrupt is tried again that came while a module was imported."""


def main() -> None:
    """Run the command line of this process. An interrupt while a module is imported waits for its end: PyTorch's own
    import ends the process by a signal instead."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler and hasattr(signal, "setitimer")
    for number in (signal.SIGINT, signal.SIGALRM) if handled else ():
        signal.signal(number, _interrupt)
    try:
        from xformc.cli import main as run  # noqa: PLC0415 (its imports may be interrupted, too)

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        if handled:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_: int, frame: FrameType | None) -> None:
    if any(one.f_code.co_filename.startswith("<frozen importlib") for one in _stack(frame)):
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        return
    raise KeyboardInterrupt


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


if __name__ == "__main__":
    main()
