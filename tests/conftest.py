"""Fixtures for tests of the runtime and the command line: a tiny hand-made engine."""

import gc
import os
import shutil
from pathlib import Path

import hypothesis
import pytest
from command_line import CommandLine
from tiny_engine import endless_model, make_engine

from tests.runtime.kernel_session import NO_KERNELS
from xformc.runtime import Engine, load

os.environ["XFORMC_CHECK_PASSES"] = "1"  # every graph is verified after every pass

hypothesis.settings.register_profile("no deadline", deadline=None)  # machines that do other things, too, are no mistake
hypothesis.settings.load_profile("no deadline")


def pytest_configure() -> None:
    """Processes of tests that run side by side have a core each, so that sessions in them take one thread each."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def pytest_collection_finish() -> None:
    """What was imported stays until the end: the collector of garbage need not visit it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was skipped because there are no kernels, which are most of what the README promises."""
    reports = terminalreporter.getreports("skipped")
    reasons = [str(report.longrepr[2]) for report in reports if isinstance(report.longrepr, tuple)]
    missing = [reason.partition(NO_KERNELS)[2] for reason in reasons if NO_KERNELS in reason]
    if missing:
        line = f"kernels: NOT BUILT, {len(missing)} tests of target native skipped: {missing[0]}; run `make kernels`"
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture(scope="session")
def copy_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the engine that copies; to be left as it is."""
    return make_engine(tmp_path_factory.mktemp("engines") / "copy")


@pytest.fixture(scope="session")
def endless_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an engine whose batches take forever."""
    return make_engine(tmp_path_factory.mktemp("engines") / "endless", endless_model())


@pytest.fixture
def own_engine(copy_engine: Path, tmp_path: Path) -> Path:
    """A copy of that folder, for a test to damage."""
    return Path(shutil.copytree(copy_engine, tmp_path / "engine"))


@pytest.fixture(scope="session")
def engine(copy_engine: Path) -> Engine:
    return load(copy_engine, threads=1)


@pytest.fixture
def xformc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line: `xformc("translate", engine, stdin="hello")`."""
    return CommandLine(monkeypatch, capsys)
