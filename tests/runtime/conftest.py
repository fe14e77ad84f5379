"""Fixtures for tests of the runtime."""

from pathlib import Path
from typing import cast

import pytest


@pytest.fixture(params=["portable", "avx2", "best"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind of vectors that the kernels know; a test on one that this machine lacks is skipped."""
    name = cast(str, request.param)
    if name == "avx2" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    monkeypatch.delenv("XFORMC_KERNELS_ISA", raising=False)
    if name != "best":
        monkeypatch.setenv("XFORMC_KERNELS_ISA", name)
    return name
