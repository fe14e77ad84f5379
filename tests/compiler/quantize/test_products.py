"""Matrix products with quantized weights agree with numpy, on both targets and in any batch."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.one_op import Case, one_op
from xformc.compiler.backends.onnx.initializers import Initializers, read_parameters, save_model
from xformc.compiler.backends.onnx.models import forward_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.linear import Linear
from xformc.compiler.quantize import int8
from xformc.compiler.quantize.halves import from_bfloat16, to_bfloat16
from xformc.format.names import MODEL
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.runtime.session import open_model

SIZES = {"b": 3, "t": 4, "k": 5, "d": 14, "h": 3, "o": 11, "v": 23}
LINEAR = Case(Linear(("k", "d")), (("b", "t", "k", "d"),), (("h", "o", "k", "d"), ("h", "o")))
TABLE = Case(Embedding(), (("b", "t"),), (("v", "d", "k"),), ("int64",))
ROUNDED: tuple[Precision, ...] = ("float16", "bfloat16", "int8", "int4")


class Stored:
    """A one-op model whose parameters are stored in a precision, and those parameters as they are stored."""

    def __init__(
        self, case: Case, precision: Precision, folder: Path, target: Target, step: float | None = None
    ) -> None:
        graph = one_op(case, SIZES)
        module = TorchModule(graph, seed=3)
        arrays = module.arrays()
        weights = Initializers(arrays, {"p/0": precision}, input_scales={} if step is None else {"p/0": step})
        save_model(forward_model(graph, weights, target=target), weights, folder)
        self.parameters = read_parameters(folder / MODEL, {item.name: item.type.sizes() for item in graph.parameters})
        self.session = open_model(folder / MODEL, target=target)
        module.load_arrays(self.parameters)
        self.module = module

    def run(self, x: NDArray) -> NDArray:
        (result,) = self.session.run(None, {"x0": x})
        return result

    def exact(self, x: NDArray) -> NDArray:
        with torch.inference_mode():
            return self.module(torch.from_numpy(x)).numpy()


def inputs(seed: int = 0) -> NDArray[np.float32]:
    """Rows of very different sizes, one of zeros."""
    x = np.random.default_rng(seed).standard_normal((3, 4, 5, 14)).astype(np.float32)
    x *= np.float32(10.0) ** np.arange(-4, 8, dtype=np.float32).reshape(3, 4, 1, 1)
    x[1, 1] = 0
    return x


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("precision", ROUNDED)
def test_rows_of_a_rounded_table_are_exact(precision: Precision, target: Target, tmp_path: Path) -> None:
    stored = Stored(TABLE, precision, tmp_path, target)
    ids = np.random.default_rng(0).integers(0, 23, (3, 4))
    assert np.array_equal(stored.run(ids), stored.parameters["p/0"][ids])


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_products_with_16_bits_are_those_of_float32(precision: Precision, target: Target, tmp_path: Path) -> None:
    """In bfloat16, of inputs that are rounded to it."""
    stored, x = Stored(LINEAR, precision, tmp_path, target), inputs()
    used = x if precision == "float16" else from_bfloat16(to_bfloat16(x))
    np.testing.assert_allclose(stored.run(x), stored.exact(used), rtol=1e-4, atol=1e-6 * np.abs(x).max())


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_int8_rounds_each_row_by_its_own_largest_number(target: Target, tmp_path: Path) -> None:
    stored, x = Stored(LINEAR, "int8", tmp_path, target), inputs()
    rows = x.reshape(12, 70)
    step = np.abs(rows).max(1, keepdims=True) / np.float32(127)
    rounded = np.rint(np.divide(rows, step, where=step > 0, out=np.zeros_like(rows))).astype(np.float64) * step
    weight, bias = (stored.parameters[name].astype(np.float64) for name in ("p/0", "p/1"))
    expected = (rounded @ weight.reshape(33, 70).T + bias.reshape(-1)).reshape(3, 4, 3, 11)
    np.testing.assert_allclose(stored.run(x), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_int8_is_the_same_to_the_bit_where_signed_products_are_not_exact(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both branches are exact on a processor with VNNI, and the second one is on every processor."""
    expected = Stored(LINEAR, "int8", tmp_path, target).run(inputs())
    monkeypatch.setattr(int8, "emit_signed_products_are_exact", lambda onnx: onnx.op("Cast", 0, to=TensorProto.BOOL))
    (tmp_path / "unsigned").mkdir()
    assert np.array_equal(Stored(LINEAR, "int8", tmp_path / "unsigned", target).run(inputs()), expected)


def test_a_loaded_model_keeps_one_integer_product_of_two(tmp_path: Path) -> None:
    """ONNX Runtime decides when it loads the model, so the choice takes no time afterwards."""
    Stored(LINEAR, "int8", tmp_path, "portable")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    onnxruntime.InferenceSession(str(tmp_path / MODEL), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "loaded.onnx", load_external_data=False).graph.node]
    assert (kinds.count("MatMulInteger"), kinds.count("If")) == (1, 0)


ROUND = {
    "int8": lambda x: np.clip(np.rint(x), -128, 127),
    "float8": lambda x: np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn),
}


@pytest.mark.parametrize("step", [0.01, 3.0])
@pytest.mark.parametrize("precision", ROUND)
def test_calibrated_products_round_in_one_step(precision: Precision, step: float, tmp_path: Path) -> None:
    """Of rows of very different sizes: some are all 0 then, and some beyond what 8 bits reach."""
    stored, x = Stored(LINEAR, precision, tmp_path, "tensorrt", step), inputs()
    rows = ROUND[precision](x.reshape(12, 70) / np.float32(step)).astype(np.float64) * np.float32(step)
    assert not rows[0].any() or step < 1
    assert np.abs(rows).max() == pytest.approx(step * (128 if precision == "int8" else 448))
    weight, bias = (stored.parameters[name].astype(np.float64) for name in ("p/0", "p/1"))
    expected = (rows @ weight.reshape(33, 70).T + bias.reshape(-1)).reshape(3, 4, 3, 11)
    np.testing.assert_allclose(stored.run(x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("precision", ROUND)
def test_rows_of_a_table_are_not_rounded_again_by_a_calibration(precision: Precision, tmp_path: Path) -> None:
    stored, ids = Stored(TABLE, precision, tmp_path, "tensorrt", 100.0), np.arange(12).reshape(3, 4)
    assert np.array_equal(stored.run(ids), stored.parameters["p/0"][ids])


def test_quantized_products_are_run_as_they_are_written(tmp_path: Path) -> None:
    """ONNX Runtime would make an integer product of this one, for which it has no float8."""
    numbers, eight = np.array([[0.3, -7.0], [500.0, 1.0]], np.float32), TensorProto.FLOAT8E4M3FN
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step"], ["q"], output_dtype=eight),
        helper.make_node("DequantizeLinear", ["q", "step"], ["restored"]),
        helper.make_node("MatMul", ["restored", "restored"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.array(0.5, np.float32), "step")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    rounded = ROUND["float8"](numbers / 0.5).astype(np.float32) * np.float32(0.5)
    (found,) = open_model(tmp_path / "m.onnx").run(None, {"x": numbers})
    np.testing.assert_allclose(found, rounded @ rounded, rtol=1e-6)


def test_int4_rounds_no_factor_where_operators_are_standard(tmp_path: Path) -> None:
    stored, x = Stored(LINEAR, "int4", tmp_path, "portable"), inputs()
    np.testing.assert_allclose(stored.run(x), stored.exact(x), rtol=1e-4, atol=1e-6 * np.abs(x).max())


def test_int4_rounds_a_factor_to_8_bits_with_fused_operators(tmp_path: Path) -> None:
    stored, x = Stored(LINEAR, "int4", tmp_path, "cpu"), inputs()
    found, expected = stored.run(x), stored.exact(x)
    size = np.abs(x).reshape(3, 4, -1).max(-1)[..., None, None] * np.abs(stored.parameters["p/0"]).sum((2, 3))
    assert (np.abs(found - expected) <= size / 127 + 1e-6).all()


@pytest.mark.parametrize("case", [LINEAR, TABLE])
@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_each_row_is_the_same_in_every_batch(precision: Precision, target: Target, case: Case, tmp_path: Path) -> None:
    stored = Stored(case, precision, tmp_path, target)
    x = inputs() if case is LINEAR else np.arange(12).reshape(3, 4)
    together = stored.run(x)
    for row in range(3):
        alone = stored.run(x[row : row + 1, :1])[0, 0]
        if precision == "int8" or case is TABLE:
            assert np.array_equal(alone, together[row, 0])
        else:
            np.testing.assert_allclose(alone, together[row, 0], rtol=1e-4, atol=1e-5 * np.abs(x[row]).max())
