"""A worker of the fuzzer: `python -m tests.fuzz.worker FIRST STEP` runs the cases FIRST, FIRST + STEP, ...

It is a process of its own, because a case may end it. After each case it prints a line: the operator, and `ran` or
`refused`.
"""

import faulthandler
import os
import resource
import signal
import sys
from random import Random

from tests.fuzz.cases import Case
from tests.fuzz.mutations import mutate
from tests.fuzz.valid import valid_case

MEMORY = 4 << 30
"""Bytes of address space: a larger allocation is an error, and not the end of the machine's memory."""

HANG = 60
"""Seconds after which a case counts as one that never ends: SIGALRM ends the process."""


def case_of(seed: int) -> Case:
    """Return the case with this seed."""
    random = Random(seed)
    return mutate(random, valid_case(random))


def outcome_of(case: Case) -> str:
    """Run the case, and return whether it ran or, with the message, was refused."""
    signal.alarm(HANG)
    try:
        case.run()
    except Exception as error:
        return f"refused: {' '.join(str(error).split())}"
    finally:
        signal.alarm(0)
    return "ran"


def limit_memory() -> None:
    """Bound the memory of this process, unless it runs with AddressSanitizer, which maps terabytes."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main(first: int, step: int) -> None:
    """Run cases until the process is ended."""
    faulthandler.enable()
    limit_memory()
    seed = first
    while True:
        case = case_of(seed)
        print(case.operator, outcome_of(case).partition(":")[0], flush=True)
        seed += step


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
