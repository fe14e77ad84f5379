"""Frames: the stage, layer and block that each node of a graph came from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_specs import names, small
from xformc.compiler.spec import load_spec
from xformc.compiler.spec.frames import Frame

TWO_LAYERS = """\
extends: transformer_base
sizes: {layers: 2, d_model: 8, d_ff: 8, heads: 2, vocabulary: 20}
"""


def all_of(frames: tuple[Frame, ...]) -> Iterator[Frame]:
    for frame in frames:
        yield frame
        yield from all_of(frame.children)


@pytest.fixture
def stages(tmp_path: Path) -> tuple[Frame, ...]:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_LAYERS)
    return load_spec(path).frames()


def test_frames_have_the_paths_of_stages_layers_and_blocks(stages: tuple[Frame, ...]) -> None:
    assert [(stage.kind, stage.name, stage.path) for stage in stages] == [
        ("stage", name, name) for name in ("encoder", "decoder", "logits")
    ]
    (layers,) = (frame for frame in all_of(stages[:1]) if frame.kind == "repeat")
    assert layers.times == 2
    assert [(layer.kind, layer.path) for layer in layers.children] == [
        ("iteration", "encoder/0"),
        ("iteration", "encoder/1"),
    ]
    blocks = [frame.path for frame in all_of(layers.children) if frame.name in ("self_attention", "feed_forward")]
    assert blocks == [f"encoder/{layer}/{name}" for layer in (0, 1) for name in ("self_attention", "feed_forward")]


def test_frames_of_layers_follow_each_other(stages: tuple[Frame, ...]) -> None:
    (layers,) = (frame for frame in all_of(stages[:1]) if frame.kind == "repeat")
    first, second = layers.children
    assert (layers.x, layers.result) == (first.x, second.result) and first.result == second.x
    assert layers.made == first.made + second.made


def test_frames_say_how_a_block_was_called(stages: tuple[Frame, ...]) -> None:
    calls = {frame.path: frame for frame in all_of(stages) if frame.kind == "primitive"}
    assert (calls["encoder/0/feed_forward/inner"].name, calls["encoder/0/feed_forward/inner"].step) == (
        "linear",
        "inner",
    )
    assert calls["encoder/0/feed_forward/inner"].written == "d_ff"
    assert any(frame.given for frame in all_of(stages) if frame.name == "residual")


@pytest.mark.parametrize("name", names())
def test_every_node_is_in_one_frame_of_each_level(name: str) -> None:
    spec = small(name)
    graph, stages = spec.graph(), spec.frames()
    made = [value for stage in stages for value in stage.made]
    assert len(made) == len(set(made))
    whole = set(made)
    nodes = [node.outputs[0].name for node in graph.nodes]
    assert all(value in whole or value.endswith(("/mask", "/blank_padding")) for value in nodes)
    for frame in all_of(stages):
        inside = [value for child in frame.children for value in child.made]
        children = set(inside)
        assert [value for value in frame.made if value in children] == inside
        assert all(value.startswith(frame.path) for value in frame.made)
