"""Every layout of a parameter in a model's file is read back as the same numbers, or rejected."""

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from xformc.compiler.backends.onnx import initializers
from xformc.compiler.backends.onnx.initializers import (
    OWN_DATA,
    Initializers,
    read_parameters,
    read_precisions,
    save_model,
)
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Initial, Parameter, Value
from xformc.compiler.graph.weight import LayoutName
from xformc.compiler.quantize import formats
from xformc.compiler.quantize.elements import pair, unpair
from xformc.compiler.quantize.float8 import LARGEST, restore_float8, round_float8
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.halves import from_bfloat16, to_bfloat16
from xformc.compiler.quantize.int4 import from_nibble_panels, nibble_panels, restore_blocks, round_blocks
from xformc.compiler.quantize.int8 import byte_panels, from_byte_panels, restore_rows, round_rows
from xformc.compiler.quantize.layouts import PANELS, from_panels, panels
from xformc.format.names import DATA, MODEL
from xformc.format.precision import WORDS, Precision

SIZES = (5, 9, 7)
NEW, WIDTH = 5, 63
ASKED: dict[str, tuple[Precision, LayoutName]] = {
    f"{precision} {name}": (precision, name) for precision, format in FORMATS.items() for name in format.layouts
}
EXACT = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8}


def matrix(new: int = NEW, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((new, width)).astype(np.float32)


def model_of(*names: str) -> onnx.ModelProto:
    nodes = [helper.make_node("Shape", [name], [f"{name}.shape"]) for name in names]
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


def save(folder: Path, form: str, beside: Path | None = None) -> None:
    precision, layout = ASKED[form]
    stored = Initializers({"a/weight": matrix().reshape(SIZES)}, {"a/weight": precision})
    axes = tuple(Axis(f"a{index}", size) for index, size in enumerate(SIZES))
    stored.use(Parameter(Value("a/weight", Type("float32", axes)), Initial("normal", 1.0)))
    weight = stored.weight("a/weight", layout, NEW, WIDTH)
    assert len(weight.tensors) == (4 if layout == "screened" else 1 + (precision in ("int8", "int4", "float8")))
    save_model(model_of(*weight.tensors), stored, folder, beside)


def test_every_word_is_of_a_number_format() -> None:
    assert set(WORDS.values()) == set(FORMATS)
    assert set(ASKED) == {f"{name} rows" for name in FORMATS} | {"int4 blocks", "float32 screened"} | {
        f"{name} panels" for name in FORMATS if name != "float8"
    }


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("form", ASKED)
def test_each_form_restores_the_rounded_weights(
    tmp_path: Path, form: str, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 2**20 if inline else 0)
    save(tmp_path, form)
    assert (tmp_path / DATA).exists() != inline
    restored = read_parameters(tmp_path / MODEL, {"a/weight": SIZES})["a/weight"]
    assert restored.dtype == np.float32 and restored.shape == SIZES
    wanted, found = matrix(), restored.reshape(NEW, WIDTH)
    precision, layout = ASKED[form]
    if precision in EXACT:
        smallest = 2**-27 if layout == "screened" else 0
        assert (np.abs(found - wanted) <= EXACT[precision] * np.abs(wanted) + smallest).all()
    else:
        step = np.abs(wanted).max() / {"int8": 127, "int4": 8, "float8": 14}[precision]
        assert np.abs(found - wanted).max() <= step * 1.01
        assert len(np.unique(found[0])) <= {"int8": 255, "int4": 16 * 2, "float8": 253}[precision]


@pytest.mark.parametrize("form", ASKED)
def test_a_model_beside_an_engine_shares_its_tensors(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    for name in ("engine", "same", "other"):
        (tmp_path / name).mkdir()
    save(tmp_path / "engine", form)
    before = (tmp_path / "engine" / DATA).read_bytes()
    save(tmp_path / "same", form, tmp_path / "engine")
    assert (tmp_path / "same" / DATA).samefile(tmp_path / "engine" / DATA)
    assert (tmp_path / "same" / OWN_DATA).stat().st_size == 0
    other = "float32 rows" if form != "float32 rows" else "int8 rows"
    save(tmp_path / "other", other, tmp_path / "engine")
    assert (tmp_path / "other" / OWN_DATA).stat().st_size > 0
    assert (tmp_path / "engine" / DATA).read_bytes() == before


def test_tensors_of_the_data_file_are_aligned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    save(tmp_path, "int8 panels")
    tensors = onnx.load(tmp_path / MODEL, load_external_data=False).graph.initializer
    offsets = [int(entry.value) for tensor in tensors for entry in tensor.external_data if entry.key == "offset"]
    assert len(offsets) == 2 and len(set(offsets)) == 2 and not any(offset % 4096 for offset in offsets)


def test_a_parameter_that_no_node_uses_is_there_as_it_is(tmp_path: Path) -> None:
    stored = Initializers({"a/weight": matrix().reshape(SIZES)}, {"a/weight": "int8"})
    axes = tuple(Axis(f"a{index}", size) for index, size in enumerate(SIZES))
    stored.use(Parameter(Value("a/weight", Type("float32", axes)), Initial("normal", 1.0)))
    save_model(model_of("other"), stored, tmp_path)
    found = read_parameters(tmp_path / MODEL, {"a/weight": SIZES})["a/weight"]
    assert np.array_equal(found, matrix().reshape(SIZES))


@given(new=st.integers(1, 70), width=st.integers(1, 70), seed=st.integers(0, 99), magnitude=st.integers(-30, 30))
def test_rounding_what_was_restored_changes_nothing(new: int, width: int, seed: int, magnitude: int) -> None:
    wanted = np.ldexp(matrix(new, width, seed), magnitude * 3)
    wanted[seed % new] *= seed % 2
    rounded, scale = round_rows(wanted)
    restored = restore_rows(rounded, scale)
    again, scale_again = round_rows(restored)
    assert np.array_equal(again, rounded) and np.array_equal(scale_again, scale)
    bits, one_scale = round_float8(wanted)
    again, scale_again = round_float8(restore_float8(bits, one_scale))
    assert np.array_equal(again, bits) and np.array_equal(scale_again, one_scale)
    packed = byte_panels(rounded)
    assert np.array_equal(from_byte_panels(packed, new, width), rounded)
    parts, scales = round_blocks(wanted)
    restored = restore_blocks(parts, scales, width)
    assert np.array_equal(restore_blocks(*round_blocks(restored), width), restored)
    assert np.array_equal(unpair(pair(parts)), parts)
    found = from_nibble_panels(*nibble_panels(parts, scales))
    assert np.array_equal(found[0], parts) and np.array_equal(found[1], scales)
    assert np.array_equal(from_panels(panels(wanted), new), wanted)


def test_panels_are_those_of_the_kernels_page() -> None:
    wanted, rounded = matrix(40, 6), round_rows(matrix(40, 6))[0]
    packed, bytes_ = panels(wanted), byte_panels(rounded)
    assert packed.shape == (2, 6, 32) and bytes_.shape == (2, 2, 32, 4) and bytes_.dtype == np.uint8
    for row, column in ((0, 0), (31, 5), (32, 1), (39, 3)):
        assert packed[row // 32, column, row % 32] == wanted[row, column]
        assert int(bytes_[row // 32, column // 4, row % 32, column % 4]) - 128 == rounded[row, column]
    assert not packed[1, :, 8:].any()
    assert (bytes_[1, :, 8:] == 128).all() and (bytes_[:, 1, :, 2:] == 128).all()


def test_float8_is_the_nearest_one_of_its_253() -> None:
    numbers = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    assert len(numbers) == 253 and numbers.max() == LARGEST
    wanted = matrix(64, 64) * np.float32(3)
    bits, scale = round_float8(wanted)
    found = restore_float8(bits, scale)
    nearest = np.abs(wanted[..., None] / scale - numbers).min(-1)
    np.testing.assert_allclose(np.abs(found - wanted) / scale, nearest, rtol=1e-3, atol=1e-4)


def test_bfloat16_is_the_nearest_one() -> None:
    wanted = matrix(64, 64)
    nearest = wanted.astype(ml_dtypes.bfloat16)
    assert np.array_equal(to_bfloat16(wanted), nearest.view(np.uint16))
    assert np.array_equal(from_bfloat16(to_bfloat16(wanted)), nearest.astype(np.float32))


@pytest.mark.parametrize("form", ASKED)
def test_the_file_says_in_which_numbers_a_parameter_is(tmp_path: Path, form: str) -> None:
    save(tmp_path, form)
    assert read_precisions(tmp_path / MODEL, ["a/weight", "other"]) == {"a/weight": ASKED[form][0]}


def _set(key: str, value: str) -> Callable[[TensorProto], None]:
    def change(tensor: TensorProto) -> None:
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = value

    return change


def _dims(*dims: int) -> Callable[[TensorProto], None]:
    def change(tensor: TensorProto) -> None:
        tensor.dims[:] = dims

    return change


def _type(kind: int) -> Callable[[TensorProto], None]:
    return lambda tensor: setattr(tensor, "data_type", kind)


@pytest.mark.parametrize(
    "change",
    [
        _set("location", "../../etc/passwd"),
        _set("offset", "-1"),
        _set("offset", "99999999"),
        _set("offset", "many"),
        _set("length", "7"),
        _dims(1, 16, 32, 5),
        _dims(1, 16, 64, 2),
        _dims(2**40, 2**40, 32, 4),
        _dims(-1, 16, 32, 4),
        _dims(),
        _type(TensorProto.INT8),
        _type(TensorProto.FLOAT),
        _type(TensorProto.STRING),
        _type(999),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused(
    tmp_path: Path, change: Callable[[TensorProto], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    save(tmp_path, "int8 panels")
    model = onnx.ModelProto.FromString((tmp_path / MODEL).read_bytes())
    change(next(tensor for tensor in model.graph.initializer if tensor.name.endswith(PANELS)))
    (tmp_path / MODEL).write_bytes(model.SerializeToString())
    with pytest.raises(ValueError):
        read_parameters(tmp_path / MODEL, {"a/weight": SIZES})


@pytest.mark.parametrize("form", ASKED)
@given(data=st.data())
def test_any_shapes_are_restored_or_refused(form: str, data: st.DataObject) -> None:
    kinds = {TensorProto.FLOAT: np.float32, TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
    kinds |= {TensorProto.UINT16: np.uint16, TensorProto.FLOAT16: np.float16, TensorProto.INT4: np.int8}
    kinds |= {TensorProto.INT16: np.int16}
    shapes = st.lists(st.sampled_from([0, 1, 2, 4, 5, 16, 32, 63]), max_size=5)
    suffix, kind = data.draw(st.sampled_from(formats.suffixes())), data.draw(st.sampled_from(list(kinds)))
    stored = {
        f"w{suffix}": (int(kind), np.zeros(data.draw(shapes), kinds[kind])),
        "w.scale": (int(TensorProto.FLOAT), np.zeros(data.draw(shapes), np.float32)),
        "w.screen_scale": (int(TensorProto.FLOAT), np.zeros(data.draw(shapes), np.float32)),
        "w.screen_rest": (int(TensorProto.INT16), np.zeros(data.draw(shapes), np.int16)),
    }
    try:
        assert formats.restore("w", SIZES, stored).shape == SIZES
    except ValueError as error:
        assert "which is not a layout of [5, 9, 7]" in str(error)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("outside", [True, False])
def test_a_loop_in_a_loop_has_its_constants_itself(
    tmp_path: Path, inline: bool, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 2**20 if inline else 0)
    graph = helper.make_graph([helper.make_node("Shape", ["a/weight"], ["inner"])], "inner", [], [])
    for name in ("middle", "outer"):
        graph = helper.make_graph([helper.make_node("Loop", ["", ""], [name], body=graph)], name, [], [])
    if outside:
        graph.node.append(helper.make_node("Shape", ["a/weight"], ["there"]))
    model, stored = helper.make_model(graph), Initializers({"a/weight": matrix()})
    axes = (Axis("new", NEW), Axis("width", WIDTH))
    stored.use(Parameter(Value("a/weight", Type("float32", axes)), Initial("normal", 1.0)))
    save_model(model, stored, tmp_path)
    (inner,) = (node.attribute[0].g.node[0].attribute[0].g for node in model.graph.node if node.op_type == "Loop")
    assert [tensor.name for tensor in inner.initializer] == list(inner.node[0].input)
    assert [tensor.name for tensor in model.graph.initializer] == (["a/weight"] if outside else [])
    assert inner.initializer[0].name == ("a/weight.0" if outside else "a/weight")
    found = read_parameters(tmp_path / MODEL, {"a/weight": (NEW, WIDTH)})
    assert np.array_equal(found["a/weight"], matrix())
    if not inline:
        assert (tmp_path / DATA).stat().st_size == 4 * NEW * WIDTH


def test_a_shared_tensor_has_the_shape_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initializers, "INLINE_BYTES", 0)
    for name in ("engine", "beside"):
        (tmp_path / name).mkdir()
    save(tmp_path / "engine", "float32 rows")
    stored = Initializers({"a/weight": matrix().reshape(SIZES)})
    axes = tuple(Axis(f"a{index}", size) for index, size in enumerate(SIZES))
    stored.use(Parameter(Value("a/weight", Type("float32", axes)), Initial("normal", 1.0)))
    model = model_of("a/weight")
    save_model(model, stored, tmp_path / "beside", tmp_path / "engine")
    assert tuple(model.graph.initializer[0].dims) == SIZES
