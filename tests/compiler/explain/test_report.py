"""`xformc report`: its blocks, its Table 1, its paths, and its text for specs that do not decode."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from laws.settings import some
from task_specs import write_task

from tests import small_specs
from xformc.compiler.explain.cost.paths import path_formula
from xformc.compiler.explain.cost.spec_cost import Report, report
from xformc.compiler.explain.cost.table import report_text, short
from xformc.compiler.graph.cost import Reach
from xformc.compiler.spec import load_spec
from xformc.specs import SHIPPED

Load = Callable[[str], Report]

TRANSFORMER = """\
extends: transformer_base
sizes: {layers: 3, d_model: 8, d_ff: 16, heads: 2, vocabulary: 30}
"""


@cache
def shipped(name: str, length: int | None = None, depth: int = 2) -> Report:
    return report(small_specs.shipped(name), length, depth)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return path

    return write


def mixing(found: Report, block: str) -> tuple[str, str, str]:
    row = next(item for item in found.blocks if item.name == block).mixing
    assert row is not None
    return row.complexity, row.sequential, row.path


@pytest.mark.parametrize(
    ("spec", "block", "row"),
    [
        ("transformer_base", "encoder/{0..5}/self_attention", ("O(n²·d)", "O(1)", "O(1)")),
        ("rnn_language_model", "states/rnn", ("O(n·d²)", "O(n)", "O(n)")),
        ("convs2s", "decoder/{0..3}/gated_convolution", ("O(k·n·d²)", "O(1)", "O(n/k)")),
        ("local_attention", "encoder/{0..5}/self_attention", ("O(r·n·d)", "O(1)", "O(n/r)")),
        ("separable_convolution", "states/{0..5}/separable", ("O(k·n·d)", "O(1)", "O(n/k)")),
        ("linear_attention", "decoder/{0..11}/causal_linear_attention", ("O(n·d·d_v)", "O(1)", "O(1)")),
        ("linformer", "encoder/{0..1}/projected_attention", ("O(n·d·rank)", "O(1)", "O(1)")),
    ],
)
def test_table_1_is_read_off_the_graph(spec: str, block: str, row: tuple[str, str, str]) -> None:
    assert mixing(shipped(spec), block) == row


def test_dilated_convolutions_have_logarithmic_paths() -> None:
    assert mixing(shipped("bytenet", depth=1), "states")[2] == "O(log_k(n))"


def test_a_formula_of_paths_takes_the_shortest_kind() -> None:
    local = Reach("text", "local", 2, 2)
    serial = Reach("text", "serial", 1)
    assert path_formula([]) is None
    assert path_formula([serial]) == "O(n)"
    assert path_formula([serial, local]) == "O(n/k)"
    assert path_formula([serial, local, Reach("text", "all")]) == "O(1)"


@pytest.mark.parametrize(
    ("spec", "hops"),
    [
        ("transformer_base", {"source": 1, "target": 1}),
        ("seq2seq", {"source": 2 * 63, "target": 63}),
        ("seq2seq_attention", {"source": 1, "target": 63}),
        ("bilstm_tagger", {"text": 63}),
        ("bytenet", {"text": 6}),
        ("convs2s", {"source": 1, "target": None}),
        ("vit", {"image": 1}),
    ],
)
def test_paths_are_counted_between_positions(spec: str, hops: dict[str, int | None]) -> None:
    assert {path.source: path.hops for path in shipped(spec).paths} == hops


def test_a_path_through_dilated_convolutions_is_the_fewest_taps_that_add_up() -> None:
    """Distances are sums of 1 or 2 times 1, 2, 4, 8, 16, each of them up to three times: 63 needs six."""
    for length in (2, 3, 17, 33, 64):
        best = [0] + [length] * (length - 1)
        for _ in range(3):
            for dilation in (1, 2, 4, 8, 16):
                best = [
                    min([best[at], *(best[at - tap] + 1 for tap in (dilation, 2 * dilation) if tap <= at)])
                    for at in range(length)
                ]
        assert shipped("bytenet", length).paths[0].hops == max(best)


def test_a_position_that_sees_too_few_others_is_told_how_many() -> None:
    (_, target) = shipped("convs2s").paths
    assert (target.hops, target.seen) == (None, 4 * 2 + 1)


def test_causal_windows_see_what_was_before_and_no_more_positions_than_there_are(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_text(
        "extends: gpt\nsizes: {layers: 2, d_model: 32, heads: 2, vocabulary: 100, window: 8}\n"
        "choices: {reach: window, positions: none}\ntrain: {max_length: 256}\n"
    )
    seen = {length: report(load_spec(path), length, 1).paths[0].seen for length in (10, 100)}
    assert seen == {10: 10, 100: 2 * 7 + 1}


def test_agreement_counts_each_copy() -> None:
    once, twice = (
        report(load_spec(SHIPPED / "multi30k.yaml", settings), 32, 1) for settings in ((), ["train.r_drop=5"])
    )
    assert (once.training.passes, twice.training.passes) == (3, 6)
    assert twice.training.flops == 2 * once.training.flops
    assert "target: none from end to end; a position depends on 9 positions" in report_text(shipped("convs2s"))


def test_blocks_add_up_and_repeated_layers_are_one() -> None:
    found = shipped("transformer_base")
    assert [block.name for block in found.blocks][:3] == [
        "encoder/embed",
        "encoder/{0..5}/self_attention",
        "encoder/{0..5}/feed_forward",
    ]
    assert sum(block.parameters for block in found.blocks) == found.total.parameters == 63_082_496
    assert sum(block.forward.flops for block in found.blocks) == pytest.approx(found.total.forward.flops)
    steps = [block.step.flops for block in found.blocks if block.step]
    assert found.total.step is not None and sum(steps) == pytest.approx(found.total.step.flops)


def test_depth_tells_more_levels_apart() -> None:
    names = {depth: [block.name for block in shipped("transformer_base", depth=depth).blocks] for depth in (1, 3)}
    assert names[1] == ["encoder", "decoder", "logits", "masks"]
    assert "decoder/{0..5}/cross_attention/query" in names[3]


def test_states_of_base_grow_by_two_vectors_a_layer() -> None:
    total = shipped("transformer_base").total
    assert (total.state_growth, total.state_fixed) == (6 * 2 * 512 * 4, 0)


def test_states_of_a_window_stop_growing() -> None:
    total = shipped("local_attention", 1000).total
    window = int(load_spec(SHIPPED / "local_attention.yaml").sizes["window"])
    assert (total.state_growth, total.state_fixed) == (0, 6 * 2 * 512 * 4 * window)


def test_products_of_base_are_two_for_each_weight_and_token() -> None:
    """Encoder and decoder have as many tokens each, and the table is multiplied once; attention adds 4·n·d a layer."""
    biases, norms = 12 * (2048 + 512) + 18 * 4 * 512, 30 * 2 * 512
    weights = 63_082_496 - biases - norms
    products = shipped("transformer_base").total.forward.products
    assert products == 2 * weights + 18 * 4 * 64 * 512


def test_training_is_three_forward_passes_of_every_token_of_the_recipe() -> None:
    found = shipped("transformer_base")
    assert (found.training.steps, found.training.units) == (100_000, 390 * 64)
    assert found.training.flops == 3 * found.total.forward.flops * 390 * 64 * 100_000
    assert 9e17 < found.training.flops < 3.3e18


def test_a_labelling_task_has_no_step() -> None:
    found = shipped("bert")
    assert found.decoding is None and found.refusal is None and found.total.step is None
    assert "step" not in report_text(found).split("\n")[3]


def test_what_is_not_causal_is_reported_with_its_place(written: Callable[[str], Path]) -> None:
    text = TRANSFORMER + "blocks: {causal_self_attention: {do: [attention: {memory: x, causal: false}]}}\n"
    path = written(text)
    found = report(load_spec(path), 8, 2)
    assert found.decoding is None and found.refusal is not None
    assert found.refusal.startswith(f"{path}:") or "transformer_base.yaml:" in found.refusal
    assert "cannot be decoded step by step" in found.refusal
    assert f"decoding  refused: {found.refusal}" in report_text(found)


def test_more_positions_than_the_model_has_are_refused(xformc: CommandLine, written: Callable[[str], Path]) -> None:
    path = written(
        "extends: transformer_base\nchoices: {positions: learned}\n"
        "sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 30, max_positions: 20}\n"
        "train: {max_length: 20}\n"
    )
    assert mistake(xformc("report", path, "--length", "21")) == (
        "the model has 20 positions, not 21\nhint: use at most 20"
    )
    assert "20 positions in every input" in xformc("report", path).out


def test_a_length_for_inputs_without_one_is_a_mistake(xformc: CommandLine) -> None:
    message = "the inputs of vit have no length: the spec fixes their sizes"
    assert mistake(xformc("report", "vit", "--length", "8")) == message
    assert mistake(xformc("report", "vit", "--measure", "64")) == message
    assert xformc("report", "vit", "--depth", "1").out.startswith("vit: classification\n\nFLOPs")


def test_inputs_without_positions_have_no_path(tmp_path: Path) -> None:
    found = report(write_task(tmp_path, "images"), None, 2)
    assert found.paths == () and all(block.mixing is None for block in found.blocks)


def test_report_as_json_has_what_the_table_has(xformc: CommandLine, written: Callable[[str], Path]) -> None:
    path = written(TRANSFORMER)
    found = json.loads(xformc("report", path, "--length", "10", "--json").out)
    assert (found["name"], found["length"], found["unit"]) == ("small", 10, "token of target")
    text = xformc("report", path, "--length", "10").out
    for block in found["blocks"]:
        assert block["name"] in text and short(block["parameters"]) in text
    assert found["total"]["state_growth"] == 3 * 2 * 8 * 4


def test_measure_has_a_point_for_each_doubling(xformc: CommandLine, written: Callable[[str], Path]) -> None:
    path = written("extends: transformer_base\nsizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 30}\n")
    plot = path.parent / "growth.svg"
    result = xformc("report", path, "--measure", "128", "--out", plot, "--json")
    points = json.loads(result.out)["points"]
    assert [point["length"] for point in points] == [64, 128] and result.code == 0
    for point in points:
        assert point["forward_seconds"] > 0 and point["step_seconds"] > 0
    first, second = points
    assert first["step_bytes"] == 4 * 8 * (2 * 63 + 2 * 64) + 64, "keys and values of 63 and of 64 positions, a mask"
    assert second["step_bytes"] == 4 * 8 * (2 * 127 + 2 * 128) + 128
    assert first["forward_bytes"] < second["forward_bytes"]
    assert plot.read_text().count("<path") > 4


def test_measure_prints_a_line_for_each_length(xformc: CommandLine, written: Callable[[str], Path]) -> None:
    path = written("extends: bilstm_tagger\nsizes: {d_model: 4, vocabulary: 30}\n")
    lines = xformc("report", path, "--measure", "5").out.splitlines()
    assert lines[0].split() == ["positions", "forward", "kept", "for", "backward", "step", "states", "and", "constants"]
    assert lines[1].split()[0] == "5" and len(lines[1].split()) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "plot.svg"], "--output is a plot of measurements\nhint: add --measure 4096"),
        (["--measure", "64", "--length", "8"], "--length and --measure exclude each other\nhint: leave out --length"),
        (["--measure", "64", "--out", "plot.gif"], "plot.gif: a picture's name says its format"),
    ],
)
def test_report_options_that_do_not_fit_are_mistakes(xformc: CommandLine, arguments: list[str], message: str) -> None:
    assert mistake(xformc("report", "transformer_base", *arguments)).startswith(message)


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [(0, "", "0"), (999, "", "999"), (63_082_496, "", "63.1M"), (2.5e-4, "s", "250 µs"), (0.0125, "s", "12.5 ms")],
)
def test_numbers_have_three_digits(number: float, unit: str, text: str) -> None:
    assert short(number, unit) == text


@pytest.mark.parametrize("name", some([path.stem for path in sorted(SHIPPED.glob("*.yaml"))], 2))
def test_every_shipped_spec_has_a_report(name: str) -> None:
    found = shipped(name, None, 1)
    assert found.total.forward.flops > found.total.forward.products > 0
    assert found.refusal is None and found.training.flops > 0
    assert all(item.hops is None or item.hops >= 1 for item in found.paths)


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "report.md").read_text()
    printed = report_text(shipped("transformer_base"))
    assert "\n".join(f"    {line}".rstrip() for line in printed.split("\n")) in page


@pytest.mark.parametrize(
    ("spec", "counted", "paper"), [("transformer_base", "9.6e17", 3.3e18), ("transformer_big", "9.7e18", 2.3e19)]
)
def test_the_page_has_the_training_costs_beside_the_papers(spec: str, counted: str, paper: float) -> None:
    page = (Path(__file__).parents[3] / "docs" / "report.md").read_text()
    flops = shipped(spec).training.flops
    assert f"{flops:.1e}".replace("+", "") == counted
    assert f"| {counted} | {paper:.1e} | {flops / paper:.0%} |".replace("+", "") in page
