"""Fuzzes xformc's operators: valid calls with a few mutations, which must run or be refused, and never end the process.

    python -m tests.fuzz.operators --seconds 60 --seed 1
    python -m tests.fuzz.operators --replay 12345

The library is the one that native engines use; XFORMC_KERNELS names another, such as one with sanitizers.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

from tests.fuzz.worker import case_of, limit_memory, outcome_of
from xformc.errors import UserError
from xformc.runtime.library import find_library

TOO_LARGE = ("requested allocation size", "allocator is out of memory", "allocation-size-too-big")
"""What AddressSanitizer says, at the end of the process, where there would be an error without it."""

LOG_LINES = 40
"""The lines of a process's last words that are shown."""


def main() -> int:
    """Return the exit code: 1 if a case ended its process, or never ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="of the first case; by default a random one")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show and run this case only, in this process")
    options = parser.parse_args()
    try:
        print(f"library: {find_library().path}")
    except UserError as error:
        print(f"WARNING: nothing was fuzzed, as there are no kernels: {error.message}", file=sys.stderr)
        return 0
    if options.replay is not None:
        return replay(options.replay)
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    return fuzz(seed, options.seconds, options.workers)


def replay(seed: int) -> int:
    """Show a case and run it here."""
    case = case_of(seed)
    print(case, flush=True)
    limit_memory()
    print(outcome_of(case))
    return 0


def fuzz(seed: int, seconds: float, workers: int) -> int:
    """Run cases for so long, each worker every `workers`-th of them. Print the findings and the number of cases."""
    end, outcomes, findings = time.monotonic() + seconds, Counter[str](), list[int]()
    threads = [
        threading.Thread(target=watch, args=(seed + i, workers, end, outcomes, findings)) for i in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for operator in sorted({key.split()[0] for key in outcomes}):
        print(f"{operator}: {outcomes[f'{operator} ran']} ran, {outcomes[f'{operator} refused']} refused")
    print(f"{outcomes.total()} cases from seed {seed} in {seconds:g} s: {len(findings)} ended their process")
    return 1 if findings else 0


def watch(seed: int, step: int, end: float, outcomes: "Counter[str]", findings: list[int]) -> None:
    """Keep a worker running until `end`, and count the outcomes of its cases; a new one goes on where one ended."""
    while time.monotonic() < end:
        with (
            tempfile.TemporaryFile("w+", errors="replace") as log,
            subprocess.Popen(command_of(seed, step), stdout=subprocess.PIPE, stderr=log, text=True) as worker,
        ):
            assert worker.stdout is not None
            for line in worker.stdout:
                outcomes[line.strip()] += 1
                seed += step
                if time.monotonic() >= end:
                    worker.kill()
                    return
            code = worker.wait()
            log.seek(0)
            report(seed, code, log.read(), findings)
        seed += step


def command_of(seed: int, step: int) -> list[str]:
    """Return the command of a worker."""
    return [sys.executable, "-m", "tests.fuzz.worker", str(seed), str(step)]


def report(seed: int, code: int, log: str, findings: list[int]) -> None:
    """Print the case that ended its process with this code, unless all it did was to want too much memory."""
    if any(sign in log for sign in TOO_LARGE):
        return
    findings.append(seed)
    reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    last = "\n".join(log.splitlines()[-LOG_LINES:] if code < 0 else log.splitlines()[:LOG_LINES])
    print(f"\nseed {seed}: {reason}\n{case_of(seed)}\n{last}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
