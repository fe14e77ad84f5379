"""Images of position encodings show the model's numbers, once each; models without positions are rejected."""

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, mistake
from safetensors.numpy import save_file

from xformc.compiler.explain.picture.position_images import Encoding, find_encodings
from xformc.compiler.spec import load_spec

SMALL = "sizes: {layers: 1, d_model: 8, d_ff: 16, heads: 2, vocabulary: 20, dropout: 0.0}"


def write(folder: Path, choice: str, sizes: str = SMALL) -> Path:
    path = folder / f"{choice}.yaml"
    path.write_text(f"extends: transformer_base\nchoices: {{positions: {choice}}}\n{sizes}\n", encoding="utf-8")
    return path


def found(path: Path, length: int) -> list[Encoding]:
    return find_encodings(load_spec(path).graph(), length, 1, None)


def test_sinusoid_is_the_formula_of_the_paper(tmp_path: Path) -> None:
    (one,) = found(write(tmp_path, "sinusoidal"), 6)
    angles = np.arange(6)[:, None] / 10000 ** (2 * np.arange(4) / 8)
    np.testing.assert_allclose(one.numbers[0, :, ::2], np.sin(angles), atol=1e-5)
    np.testing.assert_allclose(one.numbers[0, :, 1::2], np.cos(angles), atol=1e-5)
    assert one.across == "dimension"


def test_sin_only_is_sin_where_cosine_would_be(tmp_path: Path) -> None:
    (both,), (sin,) = found(write(tmp_path, "sinusoidal"), 6), found(write(tmp_path, "sin"), 6)
    np.testing.assert_allclose(sin.numbers[0, :, ::2], both.numbers[0, :, ::2], atol=1e-6)
    assert np.abs(sin.numbers[0, :, 1::2] - both.numbers[0, :, 1::2]).max() > 0.5


def test_biases_have_a_panel_for_each_head(tmp_path: Path) -> None:
    (one,) = found(write(tmp_path, "alibi"), 5)
    assert (one.numbers.shape, one.across) == ((2, 5, 5), "key")
    assert one.numbers[0, 4, 0] < one.numbers[0, 4, 3] < one.numbers[0, 4, 4] == 0


def test_learned_positions_are_read_from_weights(tmp_path: Path, xformc: CommandLine) -> None:
    sizes = SMALL.replace("{", "{max_positions: 12, ") + "\ntrain: {max_length: 12}"
    path = write(tmp_path, "learned", sizes)
    graph = load_spec(path).graph()
    arrays = {one.name: np.full(one.type.sizes(), 0.5, np.float32) for one in graph.parameters}
    (one,) = find_encodings(graph, 12, 1, arrays)
    assert np.all(one.numbers == 0.5)
    save_file(arrays, tmp_path / "weights.safetensors")
    weights = ("--weights", tmp_path / "weights.safetensors")
    result = xformc("draw", path, "--positions", "--length", "12", *weights, "--out", tmp_path / "a.png")
    assert (result.code, result.out) == (0, f"{tmp_path / 'a.png'}\n")


def test_fewer_positions_than_asked_for_are_a_mistake(tmp_path: Path, xformc: CommandLine) -> None:
    sizes = SMALL.replace("{", "{max_positions: 12, ") + "\ntrain: {max_length: 12}"
    result = xformc("draw", write(tmp_path, "learned", sizes), "--positions", "--length", "13")
    assert mistake(result) == "the model has encodings for 12 positions, not 13\nhint: use --length 12 or less"


@pytest.mark.parametrize("choice", ["none", "rotary"])
def test_a_model_that_adds_no_positions_is_a_mistake(tmp_path: Path, xformc: CommandLine, choice: str) -> None:
    message = mistake(xformc("draw", write(tmp_path, choice), "--positions"))
    assert message.startswith(f"{choice} adds no position encoding\nhint: ")


@pytest.mark.parametrize("choices", [("sinusoidal", "sin"), ("alibi",)])
def test_images_are_written(tmp_path: Path, xformc: CommandLine, choices: tuple[str, ...]) -> None:
    paths = [write(tmp_path, choice) for choice in choices]
    outs = [tmp_path / name for name in ("a.svg", "b.svg")]
    for out in outs:
        assert xformc("draw", *paths, "--positions", "--length", "9", "--out", out).code == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert "position</text>" in outs[0].read_text(encoding="utf-8")
