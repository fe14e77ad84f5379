"""Fixtures for tests of the runtime."""

import platform
from pathlib import Path
from typing import cast

import pytest

from tests.runtime.small_engines import SmallEngines

_FEATURES = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""

_BETWEEN = ["neon"] if platform.machine() == "aarch64" else ["avx2"]
"""The kinds of vectors between those of every machine and the best: other machines have none of these."""

_LESS = [kind for kind, better in (("avx512", "avx512_bf16"), ("avx512bf16", "amx_bf16")) if better in _FEATURES]
"""Those that this machine has beside its best ones."""


@pytest.fixture(params=["portable", *_BETWEEN, *_LESS, "best"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind of vectors that the kernels know; a test on one that this machine lacks is skipped."""
    name = cast(str, request.param)
    if name == "avx2" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    monkeypatch.delenv("XFORMC_KERNELS_ISA", raising=False)
    if name != "best":
        monkeypatch.setenv("XFORMC_KERNELS_ISA", name)
    return name


@pytest.fixture(scope="session")
def small_engines(tmp_path_factory: pytest.TempPathFactory) -> SmallEngines:
    return SmallEngines(tmp_path_factory.mktemp("engines"))
