"""The weights as safetensors are those of the run, and the forward pass in ONNX gives the logits of PyTorch."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from command_line import CommandLine, listing, mistake
from safetensors.torch import load_file
from small_specs import small_text

from tests.exports.test_hugging_face import done, write_run
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.trainer.tensors import write_tensors

SOURCE, TARGET = np.array([[7, 8, 9, 3], [5, 3, 0, 0]]), np.array([[2, 6, 5], [2, 9, 0]])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", small_text("transformer_base"))


@pytest.mark.parametrize("from_engine", [False, True], ids=["run", "engine"])
def test_the_forward_pass_gives_the_logits_of_pytorch(
    xformc: CommandLine, run: Path, tmp_path: Path, from_engine: bool
) -> None:
    if from_engine:
        done(xformc, "build", run, "-o", tmp_path / "engine", "--target", "portable")
    source, out = tmp_path / "engine" if from_engine else run, tmp_path / "out"
    assert done(xformc, "export", "onnx", source, "-o", out).startswith(
        f"{out}: a model from source, target to target_logits"
    )
    assert {"model.onnx", "spec.yaml", "tokenizer.model"} <= set(listing(out))
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["target_logits"], {"source": SOURCE, "target": TARGET})
    graph = load_spec(out / "spec.yaml").graph()
    module = TorchModule(graph, seed=0).eval()
    module.load_arrays(load_weights(run, graph))
    with torch.inference_mode():
        expected = module(torch.as_tensor(SOURCE), torch.as_tensor(TARGET))
    np.testing.assert_allclose(np.asarray(found)[0], expected[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_weights_have_the_names_of_the_spec(xformc: CommandLine, run: Path, tmp_path: Path, precision: str) -> None:
    out = tmp_path / "out"
    done(xformc, "export", "safetensors", run, "-o", out, "--precision", precision)
    graph = load_spec(out / "spec.yaml").graph()
    found, arrays = load_file(out / "model.safetensors"), load_weights(run, graph)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert torch.equal(found[name], torch.as_tensor(array).to(getattr(torch, precision)))


def test_the_weights_of_an_engine_are_exported_without_a_warning(
    xformc: CommandLine, run: Path, tmp_path: Path
) -> None:
    done(xformc, "build", run, "-o", tmp_path / "engine", "--target", "portable")
    torch.set_warn_always(True)
    try:
        done(xformc, "export", "safetensors", tmp_path / "engine", "-o", tmp_path / "out")
    finally:
        torch.set_warn_always(False)
    arrays = load_weights(run, load_spec(run / "spec.yaml").graph())
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(found[name], torch.as_tensor(array)) for name, array in arrays.items())


def test_weights_too_large_for_the_precision_are_one_error(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    arrays = load_weights(run, load_spec(run / "spec.yaml").graph())
    name = next(iter(arrays))
    tensors = {path: torch.as_tensor(array) + (1e9 if path == name else 0) for path, array in arrays.items()}
    write_tensors(run / "weights.safetensors", tensors, {})
    out = tmp_path / "out"
    said = mistake(xformc("export", "safetensors", run, "-o", out, "--precision", "float16"))
    assert said.startswith(f"too large for float16: {name}") and not out.exists()


def test_the_names_of_labels_come_along(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_text("text_classifier"))
    (run / "labels.txt").write_text("bad\ngood\n")
    done(xformc, "export", "onnx", run, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "labels.txt").read_text() == "bad\ngood\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["onnx", "--precision", "float16"], "--precision: not an option of onnx"),
        (["safetensors", "--precision", "int8"], "--precision int8: safetensors stores float32, float16 or bfloat16"),
        (["onnx", "--family", "llama"], "--family: not an option of onnx"),
    ],
)
def test_options_that_do_not_fit_are_one_error(
    xformc: CommandLine, run: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    kind, *options = words
    assert message in mistake(xformc("export", kind, run, "-o", tmp_path / "out", *options))
    assert not (tmp_path / "out").exists()


def test_what_is_no_run_is_one_error(xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert "neither a run nor an engine" in mistake(xformc("export", "onnx", tmp_path / "run", "-o", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
