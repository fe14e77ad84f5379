from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.weight_files import find_weights, load_weights, read_weights
from xformc.errors import UserError


def make_graph(**sizes: int) -> Graph:
    builder = GraphBuilder("tiny")
    values = [
        builder.parameter(name, Type("float32", (Axis("d", size),)), Initial("constant", 0.0))
        for name, size in sizes.items()
    ]
    return builder.finish(values)


def write(path: Path, **arrays: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.asarray(array, np.float32) for name, array in arrays.items()}, path)
    return path


def test_load_weights_gives_the_graphs_parameters(tmp_path: Path) -> None:
    file = write(tmp_path / "weights.safetensors", a=[1, 2], b=[3])
    for path in (tmp_path, file):
        arrays = load_weights(path, make_graph(a=2, b=1))
        assert {name: array.tolist() for name, array in arrays.items()} == {"a": [1.0, 2.0], "b": [3.0]}


def test_load_weights_names_all_that_differs(tmp_path: Path) -> None:
    file = write(tmp_path / "weights.safetensors", a=[1, 2], b=[3], **{f"x{i}": [0] for i in range(10)})
    with pytest.raises(UserError) as caught:
        load_weights(tmp_path, make_graph(a=3, c=1, d=1))
    assert caught.value.place == str(file)
    assert caught.value.message.splitlines() == [
        "the weights do not match spec tiny:",
        "  missing: c, d",
        "  unexpected: b, x0, x1, x2, x3, x4, x5, x6 and 3 more",
        "  wrong shape: a (found [2], required [3])",
    ]


def test_read_weights_takes_half_precision(tmp_path: Path) -> None:
    save_tensors({"a": torch.tensor([1.5]).half()}, tmp_path / "w.safetensors")
    array = read_weights(tmp_path / "w.safetensors").arrays["a"]
    assert (array.dtype, array.tolist()) == (np.float32, [1.5])


def test_read_weights_refuses_other_types(tmp_path: Path) -> None:
    save_tensors({"a": torch.tensor([1.5]).bfloat16()}, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="a is stored as BF16, must be F32, F16, F64"):
        read_weights(tmp_path / "w.safetensors")


def test_read_weights_refuses_values_that_are_not_finite(tmp_path: Path) -> None:
    file = write(tmp_path / "w.safetensors", good=[1], bad=[np.nan], worse=[np.inf])
    with pytest.raises(UserError, match="not finite in bad, worse"):
        read_weights(file)


@pytest.mark.parametrize("keep", [0, 7, 50, -1])
def test_read_weights_refuses_a_broken_file(tmp_path: Path, keep: int) -> None:
    file = write(tmp_path / "w.safetensors", a=[1, 2, 3])
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match="not a complete safetensors file") as caught:
        read_weights(file)
    assert caught.value.place == str(file)


def test_read_weights_does_not_unpickle(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="not a complete safetensors file"):
        read_weights(tmp_path / "w.safetensors")


def test_find_weights_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        find_weights(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no weights\.safetensors"):
        find_weights(tmp_path)
    (tmp_path / "spec.yaml").touch()
    with pytest.raises(UserError, match=r"this run is not finished.*\nhint: finish it with --resume$"):
        find_weights(tmp_path)
    write(tmp_path / "checkpoints" / "00000100" / "weights.safetensors", a=[1])
    write(tmp_path / "checkpoints" / "00000200" / "weights.safetensors", a=[1])
    with pytest.raises(UserError, match="this run is not finished") as caught:
        find_weights(tmp_path)
    assert str(tmp_path / "checkpoints" / "00000200") in (caught.value.hint or "")
