"""The errors of an engine for a GPU on a machine without one; on a GPU, the same results as on the CPU."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.runtime.fixed_engines import Requests, write_engines
from xformc.errors import UserError
from xformc.format.plans import Plan
from xformc.format.targets import Target
from xformc.runtime.devices import gpu
from xformc.runtime.devices.driver import find_gpu
from xformc.runtime.generation.generate import sample
from xformc.runtime.searching.search import search
from xformc.runtime.sessions import open_session

on_gpu = pytest.mark.skipif(
    gpu.CUDA not in onnxruntime.get_available_providers() or find_gpu() is None,
    reason="needs an NVIDIA GPU and onnxruntime-gpu",
)
for_processors = pytest.mark.skipif(
    gpu.CUDA in onnxruntime.get_available_providers(), reason="this onnxruntime can use a GPU"
)


@for_processors
def test_cuda_engine_says_what_to_install_where_onnx_runtime_is_for_processors(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_session(tmp_path, {}, {}, decoding="forward", target="cuda")
    assert str(raised.value) == (
        f"{tmp_path}: this engine runs on a GPU, but the installed package onnxruntime is for CPUs only"
        "\nhint: install onnxruntime-gpu over it: pip install 'xformc[gpu]' && pip install --force-reinstall "
        '--no-deps onnxruntime-gpu, or run it on the CPU: --device cpu, in Python load(..., device="cpu")'
    )


@for_processors
def test_cuda_engine_says_so_where_the_processors_package_lies_over_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        found = {"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.0"}
        if package not in found:
            raise PackageNotFoundError(package)
        return found[package]

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(UserError, match=r"onnxruntime 1\.31\.1 was installed over onnxruntime-gpu 1\.31\.0") as raised:
        gpu.require_onnx_cuda(str(tmp_path))
    assert "pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.0" in (raised.value.hint or "")


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU")
def test_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UserError, match="NVIDIA's driver finds none here") as raised:
        gpu.require_gpu("engine")
    assert "--device cpu" in (raised.value.hint or "")


def test_tensorrt_engine_without_plans_says_what_to_build(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this engine has no TensorRT plans") as raised:
        open_session(tmp_path, {}, {}, decoding="forward", target="tensorrt")
    assert "xformc build RUN -o ENGINE --target tensorrt" in (raised.value.hint or "")


def test_plans_need_their_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", None)
    plan = Plan("tensorrt", "10.13", None, None, "float32", {})
    with pytest.raises(UserError, match="this engine's plans run in tensorrt, but tensorrt cannot be imported"):
        open_session(tmp_path, {}, {}, decoding="forward", target="tensorrt", plans={"model.plan": plan})


@pytest.mark.parametrize("target", ["portable", "cpu", "native"])
def test_engines_for_processors_do_not_run_on_a_gpu(target: Target, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"an engine of target {target} runs only on the CPU"):
        open_session(tmp_path, {}, {}, decoding="forward", target=target, device="cuda")


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("name", ["transformer_base", "gpt"])
def test_search_driven_on_a_gpu_is_that_of_the_processor(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = write_engines(name, tmp_path)
    there, here = (
        open_session(
            made.cuda,
            made.program.inputs,
            made.program.results,
            decoding=made.program.decoding,
            target="cuda",
            device=device,
        )
        for device in ("cuda", "cpu")
    )
    for seed in range(8):
        requests = Requests(seed)
        if name == "gpt":
            given = requests.prompts(), requests.sampling(), requests.end()
            found, expected = sample(there, *given), sample(here, *given)
        else:
            given = {"source": requests.sources()}, requests.search(), requests.end()
            found, expected = search(there, *given), search(here, *given)
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-3)
    assert "no CUDA graphs" not in caplog.text
