"""`xformc verify --runtime cpp`: libxformc beside the Python runtime."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine

from tests.conformance.engines import FOLDER
from tests.runtime.kernel_session import kernel_library
from xformc.runtime.checks.agreement import compare_runtimes
from xformc.runtime.libxformc import CppEngine


@pytest.fixture(autouse=True)
def _library() -> None:
    kernel_library()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("copy", 4),
        ("generate", 1),
        ("tag", 2),
        ("pair", 2),
        ("arrays", 1),
        ("heads", 2),
        ("caption", 2),
        ("join", 4),
        ("speech", 2),
    ],
)
def test_runtimes_agree_on_every_kind_of_engine(name: str, count: int) -> None:
    certificate = compare_runtimes(FOLDER / name)
    assert certificate.passed
    assert len(certificate.stages) == count
    assert {stage.value for stage in certificate.stages} == {0}


def test_verify_prints_what_was_compared(xformc: CommandLine) -> None:
    result = xformc("verify", FOLDER / "generate", "--runtime", "cpp")
    assert result.code == 0
    assert result.out.startswith("ok   runtime")
    assert "results of libxformc and Python" in result.out


def test_verify_fails_for_one_bit_of_a_score(xformc: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    translate = CppEngine.translate

    def altered(engine: CppEngine, texts: Any, **options: Any) -> Any:
        [[best, *rest], *others] = translate(engine, texts, **options)
        return [[replace(best, score=float(np.nextafter(np.float32(best.score), np.float32(0)))), *rest], *others]

    monkeypatch.setattr(CppEngine, "translate", altered)
    result = xformc("verify", FOLDER / "copy", "--runtime", "cpp")
    assert result.code == 2
    assert result.out.count("FAIL runtime") == 2
    assert "the runtimes differ" in result.err


def test_verify_refuses_an_unknown_runtime(xformc: CommandLine, tmp_path: Path) -> None:
    result = xformc("verify", tmp_path, "--runtime", "javascript")
    assert result.code == 2
    assert "javascript" in result.err
