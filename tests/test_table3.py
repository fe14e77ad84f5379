"""Table 3 of the paper: each row is a few lines over the base spec, with the parameter count of its sizes."""

import pytest
import yaml

from benchmarks.table3 import PAPER, SPECS, make_row, missing_pieces, rows

LEARNED = "table3/e_learned_positions"
BASE = {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8, "vocabulary": 37000, "max_positions": 0}


def count(said: dict[str, float]) -> int:
    """The parameters of section 3: one table of embeddings, a bias in every projection, two numbers a norm."""
    sizes = {**BASE, **said}
    width, heads = sizes["d_model"], sizes["heads"]
    keys, values = (heads * sizes.get(name, width // heads) for name in ("d_k", "d_v"))
    norm = 2 * width
    attention = 2 * (width + 1) * keys + (width + 1) * values + (values + 1) * width + norm
    feed_forward = (width + 1) * sizes["d_ff"] + (sizes["d_ff"] + 1) * width + norm
    layer = 3 * attention + 2 * feed_forward
    return int(sizes["layers"] * layer + width * (sizes["vocabulary"] + 2 * sizes["max_positions"]))


@pytest.mark.parametrize("name", PAPER)
def test_row_has_the_parameters_of_its_sizes(name: str) -> None:
    said = yaml.safe_load((SPECS / f"{name}.yaml").read_text())
    row = make_row(name, PAPER[name])
    assert row.parameters == count({} if name == "transformer_base" else said.get("sizes", {}))
    assert row.percent is None or abs(row.percent) < 7


def test_table_has_every_spec_of_its_folder() -> None:
    folder = {f"table3/{path.stem}" for path in (SPECS / "table3").glob("*.yaml")}
    assert folder == {name for name in PAPER if name.startswith("table3/")}


@pytest.mark.parametrize("name", [name for name in PAPER if name.startswith("table3/") and name != LEARNED])
def test_row_is_one_line_over_the_base(name: str) -> None:
    schema, comment, extends, line = (SPECS / f"{name}.yaml").read_text().splitlines()
    assert (schema[0], comment[0], extends) == ("#", "#", "extends: transformer_base")
    assert len(yaml.safe_load(line)) == 1


def test_base_and_big_are_what_their_sizes_say() -> None:
    assert count({}) == 63_082_496
    assert count({"d_model": 1024, "d_ff": 4096, "heads": 16}) == 214_245_376


def test_one_larger_vocabulary_would_give_every_count_but_that_of_big() -> None:
    table = rows()
    low, high = missing_pieces([row for row in table if row.name != "transformer_big"])
    assert 3_900 < low < high < 4_200
    low, high = missing_pieces(table)
    assert low > high
