"""A number format defined only in this file: its engines build, certify, verify and are read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import kernel_library
from tests.verified import assert_repeats
from xformc.compiler.backends.onnx.initializers import _tensors
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import engine_parameters, verify_engine
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import Layouts, NumberFormat
from xformc.compiler.quantize.stored import Layout, Matrix, StoredTensor
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.names import MODEL
from xformc.format.precision import WORDS, Precision
from xformc.format.reader import read_manifest
from xformc.format.targets import Target

FIXED: Any = "fixed"
SEARCH = [
    *("forward", "step", "scores", "attention", "greedy", "beam", "batch"),
    *("controls", "edits", "defaults", "samples"),
]


def store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    def make() -> NDArray[np.int8]:
        return np.rint(matrix() * 64).astype(np.int8)

    return {".fixed": StoredTensor(Element.INT8, (new, width), make)}


class Fixed(NumberFormat):
    """Multiples of 1/64 below 2, in bytes without a scale."""

    precision: ClassVar[Precision] = FIXED
    layouts: ClassVar[Layouts] = {"rows": Layout(".fixed", Element.INT8, store, lambda array, *_: array / 64)}

    def check(self, matrix: NDArray[np.float32], path: str) -> None:
        if np.abs(matrix).max() * 64 > 127:
            raise UserError("a weight is beyond 127 / 64", place=path)

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        (name,) = weight.tensors
        matrix = onnx.once(f"float32 {name}", lambda: self._emit_restored(onnx, name))
        return onnx.op("Gemm", rows, matrix, *bias, transB=1)

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        return self._emit_restored(onnx, onnx.op("Gather", *weight.tensors, ids, axis=0))

    def _emit_restored(self, onnx: OnnxEmitter, name: str) -> str:
        return onnx.op("Mul", onnx.op("Cast", name, to=Element.FLOAT), 1 / 64)


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format in the table, and its word."""
    monkeypatch.setitem(FORMATS, FIXED, Fixed())
    monkeypatch.setitem(WORDS, "fix", FIXED)


@pytest.mark.parametrize("target", ["portable", "cpu", "native", "cuda"])
def test_engines_are_built_verified_and_read_back(tiny_spec: Spec, tmp_path: Path, target: Target) -> None:
    if target == "native":
        kernel_library()
    exact, rounded = tmp_path / "exact", tmp_path / "rounded"
    build_engine(tiny_spec, None, None, "portable", exact)
    built = build_engine(tiny_spec, None, None, target, rounded, rounding=Rounding(FIXED))
    stages = ["forward", "step", "greedy", "beam", "batch", "whole"] if target == "cuda" else SEARCH
    if target == "native":
        stages = [*SEARCH[:7], "refill", *SEARCH[7:]]
    assert built.passed and [stage.name for stage in built.stages] == stages
    assert_repeats(rounded, built)
    assert read_manifest(rounded).precision == FIXED
    graph = compile_engine(tiny_spec).graph
    wanted, found = (engine_parameters(graph, folder / MODEL) for folder in (exact, rounded))
    for name in tiny_spec.precisions():
        assert np.array_equal(found[name], np.rint(wanted[name] * 64) / 64)
    stored = {tensor.name: tensor.data_type for tensor in _tensors(onnx.load(rounded / MODEL).graph)}
    assert stored["decoder/0/feed_forward/inner/weight.fixed"] == onnx.TensorProto.INT8
    assert "decoder/0/feed_forward/inner/weight" not in stored


def test_numbers_that_it_cannot_hold_are_named(tiny_spec: Spec, tmp_path: Path, make_subject) -> None:
    arrays = {name: value.copy() for name, value in make_subject().module.arrays().items()}
    arrays["encoder/0/feed_forward/inner/weight"][0, 0] = 2
    with pytest.raises(UserError, match="encoder/0/feed_forward/inner/weight: a weight is beyond 127 / 64"):
        build_engine(tiny_spec, arrays, None, "portable", tmp_path / "engine", rounding=Rounding(FIXED))


def test_without_its_entry_an_engine_is_refused(
    tiny_spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine(tiny_spec, None, None, "portable", tmp_path / "engine", rounding=Rounding(FIXED))
    monkeypatch.delitem(WORDS, "fix")
    with pytest.raises(UserError, match="precision"):
        verify_engine(tmp_path / "engine")
