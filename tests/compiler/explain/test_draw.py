"""Pictures of architectures: their content, no overlaps, and the same bytes for the same spec."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from hypothesis import given
from hypothesis import strategies as st
from laws.building_blocks import CAUSAL_STEPS, DECODER_STEPS, ENCODER_STEPS
from laws.settings import examples, some
from laws.specs import Sample, samples

from tests.small_specs import names, shipped
from xformc.compiler.explain.picture.captions import pretty
from xformc.compiler.explain.picture.draw import draw_spec, measure
from xformc.compiler.explain.picture.items import Box, Group, Outline, boxes
from xformc.compiler.explain.picture.marks import Line, Part, Rectangle, Text
from xformc.compiler.explain.picture.outline import outline
from xformc.compiler.explain.picture.page import lay_page
from xformc.compiler.spec import Spec, load_spec

SPECS = Path(__file__).parents[3] / "specs"
MODELS = st.one_of(samples("translation", DECODER_STEPS, ENCODER_STEPS), samples("language_model", CAUSAL_STEPS))
BRANCHES = """\
extends: transformer_base
sizes: {layers: 2, d_model: 64, d_ff: 128, vocabulary: 100}
blocks:
  feed_forward:
    do:
      narrow: {linear: {from: x, to: d_ff}}
      wide: {linear: {from: x, to: d_ff}}
      bent: {do: [tanh, sigmoid], from: wide}
      joined: {add: {do: [linear: {from: narrow, to: d_ff}]}}
      output: {linear: {to: d_model}}
"""


def sketch_of(spec: Spec, depth: int) -> tuple[Outline, Part]:
    sketch = outline(spec, depth)
    return sketch, lay_page(sketch, measure)


def labels(group: Group) -> list[str]:
    return [box.label for box in boxes(group)]


def test_outline_is_figure_1_of_the_paper() -> None:
    sketch, _ = sketch_of(load_spec(SPECS / "transformer_base.yaml"), 2)
    encoder, decoder, logits = sketch.stages
    embed = ["Embedding", "\N{MULTIPLICATION SIGN} \N{SQUARE ROOT}d_model", "Sinusoid"]
    assert labels(encoder) == [*embed, "Self Attention", "Feed Forward"]
    assert labels(decoder) == [*embed, "Causal Self Attention", "Cross Attention", "Feed Forward"]
    assert labels(logits) == ["Linear"]
    assert [item.times for item in encoder.items if isinstance(item, Group)] == [None, 6]


def test_outline_marks_the_boxes_that_share_a_parameter() -> None:
    sketch, page = sketch_of(load_spec(SPECS / "transformer_base.yaml"), 2)
    assert list(sketch.tied) == ["encoder/embed/embedding/weight"]
    assert sum(bool(one.tied) for one in page.rectangles if one.shape == "box") == 3


def test_outline_shows_the_sizes_inside_a_box() -> None:
    sketch, _ = sketch_of(load_spec(SPECS / "transformer_base.yaml"), 2)
    notes = {box.label: box.note for box in boxes(sketch.stages[0])}
    assert notes["Self Attention"] == "heads=8, d_k=d_v=64"
    assert notes["Feed Forward"] == "d_ff=2048"


def test_a_scale_shows_its_factor_once_with_four_digits(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(
        "task: classification\nsizes: {d_model: 8, labels: 2}\ninputs: {image: {values: [d_model]}}\n"
        "model: {label: {from: image, do: [scale: 0.4342944819032518, scale: sqrt(d_model), linear: labels]}}\n"
    )
    sketch, _ = sketch_of(load_spec(tmp_path / "model.yaml"), 2)
    notes = [(box.label, box.note) for box in boxes(sketch.stages[0])]
    assert notes[:2] == [("\N{MULTIPLICATION SIGN} 0.4343", ""), ("\N{MULTIPLICATION SIGN} \N{SQUARE ROOT}d_model", "")]


def test_outline_of_pre_norm_has_the_norm_inside_the_sum() -> None:
    sketch, _ = sketch_of(load_spec(SPECS / "transformer_pre_norm.yaml"), 2)
    assert labels(sketch.stages[0])[3:6] == ["Layer Norm", "Self Attention", "Layer Norm"]


@pytest.mark.parametrize("name", some(names(), 3))
def test_nothing_overlaps(name: str) -> None:
    for depth in (2, 4):
        _, page = sketch_of(shipped(name), depth)
        assert list(faults(page)) == []


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_nothing_overlaps_where_a_block_branches(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "branches.yaml"
    path.write_text(BRANCHES)
    _, page = sketch_of(load_spec(path), depth)
    assert list(faults(page)) == []


@examples(15)
@given(MODELS, st.integers(1, 6))
def test_nothing_overlaps_in_a_random_model(tmp_path: Path, sample: Sample, depth: int) -> None:
    path = tmp_path / "random.yaml"
    path.write_text(sample.yaml(), encoding="utf-8")
    _, page = sketch_of(load_spec(path), depth)
    assert list(faults(page)) == []


def faults(page: Part) -> Iterator[str]:
    """Boxes that overlap, lines through boxes or on other lines, texts on boxes, marks beyond the page."""
    solid = [(one, area(one)) for one in page.rectangles if one.shape in ("box", "plus")]
    for (first, inside), (second, other) in combinations(solid, 2):
        if overlap(inside, other):
            yield f"{first} and {second}"
    for line in page.lines:
        for (x, y), (a, b) in zip(line.points, line.points[1:], strict=False):
            assert abs(x - a) < 0.01 or abs(y - b) < 0.01, line
            path = (min(x, a), min(y, b), max(x, a), max(y, b))
            yield from (f"{line} through {box}" for box, inside in solid if overlap(path, inside))
    for (one, these), (other, more) in combinations([(line, parts(line)) for line in page.lines], 2):
        if one.points[0] != other.points[0] and any(on_each_other(a, b) for a in these for b in more):
            yield f"{one} on {other}"
    outside = [(text, extent(text)) for text in page.texts if text.style in ("type", "title", "times", "name")]
    for text, around in outside:
        yield from (f"{text} on {box}" for box, inside in solid if overlap(around, inside))
    yield from (f"{a} on {b}" for (a, here), (b, there) in combinations(outside, 2) if overlap(here, there))
    for mark in (*map(area, page.rectangles), *map(extent, page.texts)):
        if min(mark[:2]) < 0 or mark[2] > page.right or mark[3] > page.height:
            yield f"{mark} beyond {page.right} x {page.height}"


def parts(line: Line) -> list[tuple[float, float, float, float]]:
    """The straight parts of a line: left, bottom, right, top."""
    return [
        (min(x, a), min(y, b), max(x, a), max(y, b))
        for (x, y), (a, b) in zip(line.points, line.points[1:], strict=False)
    ]


def on_each_other(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    """Whether two straight parts run along each other for more than 2 points, less than 1.5 apart."""
    for along, across in ((0, 1), (1, 0)):
        flat = a[across] == a[across + 2] and b[across] == b[across + 2]
        shared = min(a[along + 2], b[along + 2]) - max(a[along], b[along])
        if flat and abs(a[across] - b[across]) < 1.5 and shared > 2:
            return True
    return False


def area(one: Rectangle) -> tuple[float, float, float, float]:
    return one.x, one.y, one.x + one.width, one.y + one.height


def extent(text: Text) -> tuple[float, float, float, float]:
    width = measure(text.text, text.style)
    left = text.x - {"left": 0.0, "center": width / 2, "right": width}[text.align]
    return left, text.y - 2.4, left + width, text.y + 2.4


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    slack = 0.3
    across = min(a[2], b[2]) - max(a[0], b[0])
    return across > -slack + 0.6 * (a[0] != a[2]) and min(a[3], b[3]) - max(a[1], b[1]) > slack


def test_every_box_is_reached() -> None:
    sketch, _ = sketch_of(load_spec(SPECS / "transformer_base.yaml"), 5)
    assert all(box.inputs or box.label == "Sinusoid" for stage in sketch.stages for box in boxes(stage))


@pytest.mark.parametrize("name", names())
def test_what_a_stage_takes_is_made_elsewhere(name: str) -> None:
    sketch = outline(shipped(name), 2)
    far = {stage.result.name for stage in sketch.stages} | {value.name for value in sketch.inputs}
    for stage in sketch.stages:
        assert set(stage.inputs) <= far
        made = {item.result.name for item in stage.items} | {stage.x}
        assert {name for item in stage.items for name in item.inputs} <= far | made


def test_pretty_is_a_title() -> None:
    assert [pretty(name) for name in ("causal_self_attention", "relu", "mean_over_time")] == [
        "Causal Self Attention",
        "ReLU",
        "Mean over Time",
    ]


@pytest.mark.parametrize("name", ["a.svg", "a.pdf", "a.png"])
def test_draw_gives_the_same_bytes_again(tmp_path: Path, name: str) -> None:
    spec = load_spec(SPECS / "numbers.yaml")
    for folder in ("one", "two"):
        draw_spec(spec, tmp_path / folder / name, 2)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_svg_has_text_as_text(tmp_path: Path) -> None:
    draw_spec(load_spec(SPECS / "numbers.yaml"), tmp_path / "a.svg", 2)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert re.search(r"<text[^>]*>Cross Attention</text>", text)
    assert "[source, d_model=128]" in text
    assert "dc:date" not in text


def test_draw_command_writes_where_it_is_told(xformc: CommandLine, tmp_path: Path) -> None:
    result = xformc("draw", "numbers", "--out", tmp_path / "a.svg", "--depth", "1")
    assert (result.code, result.out) == (0, f"{tmp_path / 'a.svg'}\n")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_draw_command_refuses_other_formats(xformc: CommandLine, tmp_path: Path) -> None:
    message = mistake(xformc("draw", "numbers", "--out", tmp_path / "a.bmp"))
    assert message.endswith("a.bmp: a picture's name says its format\nhint: it ends in .svg, .pdf, .png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["numbers", "--positions", "--depth", "2"], "--depth and --positions exclude each other"),
        (["numbers", "--length", "9"], "--length and --weights need --positions"),
        (["numbers", "transformer_base"], "several specs need --positions"),
        (["numbers", "transformer_base", "--positions", "--weights", "run"], "--weights fits one spec only"),
    ],
)
def test_draw_command_refuses_options_that_do_nothing(xformc: CommandLine, arguments: list[str], message: str) -> None:
    assert mistake(xformc("draw", *arguments)).startswith(message)


def test_draw_command_shows_the_mistakes_of_a_spec(xformc: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("extends: transformer_base\nsizes: {idle: 3}\n", encoding="utf-8")
    message = mistake(xformc("draw", path, "--out", tmp_path / "a.svg"))
    assert f"{path}:2:9: the size 'idle' is never used" in message
    assert not (tmp_path / "a.svg").exists()


def test_depth_1_has_boxes_alone() -> None:
    sketch, _ = sketch_of(load_spec(SPECS / "numbers.yaml"), 1)
    assert all(isinstance(item, Box) for stage in sketch.stages for item in stage.items)
