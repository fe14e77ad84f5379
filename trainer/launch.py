"""Starts a command in several processes on this machine, by torch's elastic launcher."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from xformc.errors import UserError
from xformc.trainer.processes import LOST

STARTED = "XFORMC_LAUNCHED"
"""The environment variable of a process that `launch` has started."""

ENDED = 128 + signal.SIGTERM
"""The exit code of a process that the launcher has ended, because another one had failed."""

_AFTER_ANOTHER = {LOST: "lost its connection to the others", ENDED: "was ended"}
"""What became of a process that ended because another one had."""


def launch(count: int, arguments: Sequence[str]) -> None:
    """Run `xformc ARGUMENTS` in `count` processes, and wait for them. If one of them ends early, all end.

    They get the signals that end this one, and have TORCH_ELASTIC_SHUTDOWN_TIMEOUT seconds, by default 30, to end.

    Raises: UserError if a process was killed; SystemExit with the exit code of a process that has reported its error.
    """
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    os.environ[STARTED] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    with TemporaryDirectory() as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "xformc", *arguments)
        except ChildFailedError as error:
            _report(error, count)
        except SignalException as error:
            raise KeyboardInterrupt if error.sigval == signal.SIGINT else SystemExit(128 + error.sigval) from error


def _report(error: ChildFailedError, count: int) -> None:
    failures: dict[int, Any] = error.failures
    rank, code = min(((rank, one.exitcode) for rank, one in failures.items()), key=lambda item: _order(item[1]))
    if code > 0 and code not in _AFTER_ANOTHER:
        sys.exit(code)
    reason = _AFTER_ANOTHER[code] if code > 0 else f"was killed by {signal.Signals(-code).name}"
    raise UserError(
        f"process {rank} of {count} {reason}; all have ended", hint="continue from the last checkpoint with --resume"
    ) from error


def _order(code: int) -> int:
    """A process that reported its error first, then one that was killed, then those that noticed it."""
    return 2 if code in _AFTER_ANOTHER else 1 if code < 0 else 0
