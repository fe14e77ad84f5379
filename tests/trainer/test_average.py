from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from xformc.compiler.weight_files import find_weights, read_weights
from xformc.errors import UserError
from xformc.trainer.average import average_checkpoints


def write(path: Path, metadata: dict[str, str] | None = None, **arrays: np.ndarray) -> Path:
    save_file(arrays, path, metadata)
    return path


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_average_checkpoints_is_the_mean(tmp_path: Path) -> None:
    arrays = [draw(seed, 3, 4) for seed in range(5)]
    paths = [
        write(tmp_path / f"{seed}.safetensors", {"spec_sha256": "x", "steps": str(seed)}, a=array)
        for seed, array in enumerate(arrays)
    ]
    result = read_weights(average_checkpoints(paths, tmp_path / "mean.safetensors"))
    np.testing.assert_array_equal(result.arrays["a"], np.mean(arrays, 0, np.float64).astype(np.float32))
    assert result.metadata == {"spec_sha256": "x", "steps": "0,1,2,3,4"}


def test_average_of_one_is_itself_to_the_bit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", a=draw(0, 7))
    result = read_weights(average_checkpoints([path], tmp_path / "b.safetensors"))
    np.testing.assert_array_equal(result.arrays["a"], draw(0, 7))


def test_average_checkpoints_refuses_other_shapes_and_names(tmp_path: Path) -> None:
    first = write(tmp_path / "1.safetensors", a=draw(0, 2), b=draw(0, 2))
    second = write(tmp_path / "2.safetensors", a=draw(0, 3), c=draw(0, 2))
    with pytest.raises(UserError) as caught:
        average_checkpoints([first, second], tmp_path / "out.safetensors")
    assert caught.value.place == str(second)
    assert caught.value.message.splitlines() == [
        f"the weights do not match {first}:",
        "  missing: b",
        "  unexpected: c",
        "  wrong shape: a (found [3], required [2])",
    ]
    assert not (tmp_path / "out.safetensors").exists()


def test_average_checkpoints_refuses_another_spec(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.safetensors", {"spec_sha256": name}, a=draw(0, 2)) for name in "xy"]
    with pytest.raises(UserError, match="was trained with a different spec"):
        average_checkpoints(paths, tmp_path / "out.safetensors")


def test_average_checkpoints_needs_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to average"):
        average_checkpoints([], tmp_path / "out.safetensors")


def test_average_checkpoints_says_when_it_cannot_write(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", a=draw(0, 2))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        average_checkpoints([path], tmp_path / "file" / "out.safetensors")


def test_find_weights_takes_folders_and_files(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.safetensors", a=draw(0, 2))
    assert find_weights(tmp_path) == find_weights(path) == path
