"""Every shipped spec builds: its engine is certified, and decodes step by step if it can.

With kernels all of them; without, one of three in any shapes, and one of four in fixed ones. LAWS=1: all in both."""

from pathlib import Path

import pytest
from laws.settings import some

from tests.runtime.kernel_session import kernel_library
from tests.small_specs import names, shipped, small
from xformc.compiler.build import build_engine
from xformc.compiler.passes import lower as kernels
from xformc.format.targets import Target

NAMES = names()
MARKS = ((), (pytest.mark.processor,))


@pytest.mark.parametrize("name", some(NAMES, 3, 1))
def test_shipped_spec_is_certified(name: str, tmp_path: Path) -> None:
    build(name, ("cpu", "portable")[NAMES.index(name) % 2], tmp_path)


@pytest.mark.parametrize("name", [pytest.param(one, marks=MARKS[at % 6 == 0]) for at, one in enumerate(NAMES)])
def test_shipped_spec_is_certified_with_kernels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second one as if its vocabulary were large. The kernels themselves are tested with all instructions."""
    kernel_library()
    monkeypatch.setattr(kernels, "LARGE_VOCABULARY", (1, kernels.LARGE_VOCABULARY)[NAMES.index(name) % 2])
    build(name, "native", tmp_path)


@pytest.mark.parametrize("name", some(NAMES, 4))
def test_shipped_spec_is_certified_in_fixed_shapes(name: str, tmp_path: Path) -> None:
    """With one layer, or one of each kind: engines of two layers in fixed shapes are those of `tiny_spec`."""
    layers = int(shipped(name).sizes.get("period", 1))
    stages = build(name, ("cuda", "tensorrt")[NAMES.index(name) // 4 % 2], tmp_path, layers=layers)
    assert ("whole" in stages) == ("step" in stages)


def build(name: str, target: Target, tmp_path: Path, layers: int = 2) -> set[str]:
    """The names of the stages that the engine has passed."""
    spec = small(name, layers)
    certificate = build_engine(spec, None, None, target, tmp_path / "engine")
    assert certificate.passed
    stages = {stage.name for stage in certificate.stages}
    decoded = {"translation": {"step", "greedy", "beam"}, "language_model": {"step", "greedy", "sample"}}
    decoded_by_ctc = any(result.kind == "ctc" for result in spec.results)
    assert stages >= {"forward", "ctc" if decoded_by_ctc else "batch"} | decoded.get(spec.task, set())
    return stages
