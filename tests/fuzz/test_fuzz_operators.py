"""The fuzzer of operators: its valid calls are valid, its cases are the same again, and it sees how a process ends."""

import signal
import sys
from collections import Counter
from random import Random

import pytest

from tests.fuzz import operators
from tests.fuzz.valid import OPERATORS, valid_case
from tests.fuzz.worker import case_of, outcome_of
from tests.runtime.kernel_session import kernel_library

SEED = 7000


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_valid_calls_run(operator: str) -> None:
    kernel_library()
    cases = [case for case in map(valid_case, map(Random, range(500))) if case.operator == operator]
    assert len(cases) > 9
    assert [(str(case), outcome_of(case)) for case in cases[:15]] == [(str(case), "ran") for case in cases[:15]]
    assert signal.alarm(0) == 0, "an alarm that goes on would end the process of other tests"


def test_a_seed_is_a_case() -> None:
    seeds = range(SEED, SEED + 50)
    assert [str(case_of(seed)) for seed in seeds] == [str(case_of(seed)) for seed in seeds]
    assert len({str(case_of(seed)) for seed in seeds}) > 45


def test_a_case_changes_its_types_more_than_once() -> None:
    """This case made text of numbers, and a number of the text, which ended the fuzzer."""
    assert str(case_of(2127561778 + 1027))


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("signal.alarm(1); time.sleep(9)", "SIGALRM"),
        ("sys.exit(9)", "exit code 9"),
    ],
)
def test_a_case_that_ends_its_process_is_found(
    end: str, reason: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The third case of a worker ends it; another worker goes on after it."""
    script = "import os, signal, sys, time\nprint('Embed ran', flush=True)\nprint('Embed ran', flush=True)\n" + end

    def command(seed: int, step: int) -> list[str]:
        assert (seed, step) in {(SEED, 10), (SEED + 30, 10)}
        if seed == SEED:
            return [sys.executable, "-c", script]
        return [sys.executable, "-c", "print('Embed refused', flush=True)"]

    monkeypatch.setattr(operators, "command_of", command)
    outcomes, findings = Counter[str](), list[int]()

    class Clock:
        """Time goes on until the second worker has ended."""

        def monotonic(self) -> float:
            return 0.0 if not outcomes["Embed refused"] else 1.0

    monkeypatch.setattr(operators, "time", Clock())
    operators.watch(SEED, 10, 0.5, outcomes, findings)
    assert findings == [SEED + 20]
    assert outcomes == {"Embed ran": 2, "Embed refused": 1}
    printed = capfd.readouterr().out
    assert f"seed {SEED + 20}: {reason}" in printed
    assert str(case_of(SEED + 20)) in printed


def test_a_case_that_wants_too_much_memory_is_no_finding(capfd: pytest.CaptureFixture[str]) -> None:
    findings = list[int]()
    operators.report(SEED, 1, "==1==ERROR: AddressSanitizer: allocator is out of memory trying to allocate", findings)
    assert (findings, capfd.readouterr().out) == ([], "")
