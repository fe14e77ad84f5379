"""`--target auto`, the default of `xformc build`: native with kernels, cpu without."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, mistake

import xformc as library
from tests.runtime.kernel_session import kernel_library
from xformc.runtime.library import BUILD, VARIABLE

SPEC = "extends: transformer_base\nsizes: {layers: 1, d_model: 8, d_ff: 8, heads: 1, vocabulary: 20}\n"
NEEDS = "target cpu; the faster native needs kernels: "


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def target(engine: Path) -> str:
    return json.loads((engine / "engine.json").read_text())["target"]


@pytest.mark.processor
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "int8", "int4"])
def test_an_engine_is_native_in_every_number_format(
    xformc: CommandLine, spec: Path, tmp_path: Path, precision: str
) -> None:
    kernel_library()
    built = xformc("build", spec, "--precision", precision, "-o", tmp_path / "engine")
    assert (built.code, built.err, target(tmp_path / "engine")) == (0, "", "native")
    found = library.load(tmp_path / "engine", threads=1).search([[5, 6, 3]], max_length_offset=3)
    assert found.lengths.min() >= 1 and np.isfinite(found.scores).all()


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("options", [(), ("--target", "auto"), ("--precision", "int8", "--quiet")])
def test_without_kernels_an_engine_is_for_cpus_and_one_line_says_so(
    xformc: CommandLine, spec: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: tuple[str, ...]
) -> None:
    built = xformc("build", spec, *options, "-o", tmp_path / "engine")
    assert (built.code, target(tmp_path / "engine")) == (0, "cpu")
    [(_, level, line)] = caplog.record_tuples
    assert level == 30 and line.startswith(NEEDS) and line.endswith(BUILD)


@pytest.mark.usefixtures("no_kernels")
def test_from_python_as_well(spec: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert library.build(spec, tmp_path / "engine").passed
    assert target(tmp_path / "engine") == "cpu"
    assert [line.startswith(NEEDS) for _, _, line in caplog.record_tuples] == [True]
    with pytest.raises(library.UserError, match=r"target is 'fast'\nhint: use auto, portable, cpu, native, cuda"):
        library.build(spec, tmp_path / "engine", target="fast")  # type: ignore[arg-type]  # pyright: ignore


@pytest.mark.usefixtures("no_kernels")
def test_what_is_for_a_gpu_alone_stays_a_mistake(xformc: CommandLine, spec: Path, tmp_path: Path) -> None:
    built = ("build", spec, "-o", tmp_path / "engine")
    assert "float8 matrix products need TensorRT, not target cpu" in mistake(xformc(*built, "--precision", "fp8"))
    assert "need --target tensorrt" in mistake(xformc(*built, "--profile", "batch=1"))
    assert not (tmp_path / "engine").exists()


@pytest.mark.usefixtures("no_kernels")
def test_an_engine_for_a_target_by_name_needs_no_warning(
    xformc: CommandLine, spec: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert xformc("build", spec, "--target", "cpu", "-o", tmp_path / "engine").code == 0
    assert "needs xformc's kernels" in mistake(xformc("build", spec, "--target", "native", "-o", tmp_path / "other"))
    assert caplog.record_tuples == []
