"""The programs of tests/native, which call libxformc from C++ with the fake ONNX Runtime, and with the real one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from native.engines import write_engines

from xformc.errors import UserError
from xformc.runtime.library import find_library
from xformc.runtime.libxformc import onnx_library

NATIVE = Path(__file__).parents[2] / "native"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs: XFORMC_NATIVE_TESTS, or built here for the libxformc that Python uses."""
    if built := os.environ.get("XFORMC_NATIVE_TESTS"):
        return Path(built).resolve()
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    try:
        library = find_library().path
    except UserError as error:
        pytest.skip(f"there is no libxformc: {error}")
    folder = tmp_path_factory.mktemp("native")
    _run(["cmake", "-S", str(NATIVE), "-B", str(folder), f"-DXFORMC_LIBRARY={library}"])
    _run(["cmake", "--build", str(folder), "--parallel", "2"])
    return folder


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_engines(tmp_path_factory.mktemp("engines") / "all")


@pytest.mark.parametrize("name", ["arguments", "threads", "memory"])
def test_native_program_finds_no_fault(name: str, programs: Path, engines: Path) -> None:
    if name == "memory" and "XFORMC_NATIVE_TESTS" in os.environ:
        pytest.skip("sanitizers have an allocator of their own")
    _run([str(programs / name), str(engines)], XFORMC_ONNXRUNTIME=str(programs / "libfake_onnxruntime.so"))


def test_native_forks_end(programs: Path, engines: Path) -> None:
    fake = str(programs / "libfake_onnxruntime.so")
    _run([str(programs / "forks"), str(engines / "translation")], XFORMC_ONNXRUNTIME=fake)


def test_native_forks_end_with_threads_of_onnx_runtime(programs: Path, tmp_path: Path) -> None:
    """A session of ONNX Runtime has threads, which a forked process lacks."""
    pytest.importorskip("onnx")
    from tiny_engine import make_engine

    engine = make_engine(tmp_path / "engine")
    _run([str(programs / "forks"), str(engine)], XFORMC_ONNXRUNTIME=str(onnx_library()))


def test_native_routines_are_the_portable_ones(programs: Path) -> None:
    """Those for AVX-VNNI with the instructions of AVX-512 that do the same, and for AMX perhaps with emulated ones."""
    if "avx512_vnni" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX-512 with VNNI")
    _run(["cmake", "--build", str(programs), "--target", "routines", "--parallel", "2"])
    said = _run([str(programs / "routines")], XFORMC_KERNELS_ISA="")
    if "NOT TESTED" in said:
        pytest.skip(said)


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"
    return done.stdout
