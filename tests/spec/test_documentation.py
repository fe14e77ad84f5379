"""The page that teaches the language is right: its examples run, its paths exist, its tables are complete."""

import re
from pathlib import Path

import pytest

from xformc.compiler.spec import elaborate, tree
from xformc.compiler.spec.load import SHIPPED, load_tree
from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec.signature import TAKEN_KINDS
from xformc.compiler.spec.writer import MAX_PARAMETERS

from .conftest import Build, Problems

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(index) for index in range(len(EXAMPLES))])
def test_example_is_a_spec(build: Build, example: str) -> None:
    assert build(example).parameter_count() > 0


def test_parameter_paths_of_the_page_exist(build: Build) -> None:
    listed = re.findall(r"^    ((?:encoder|decoder|logits)/\S+)$", PAGE, re.MULTILINE)
    names = {parameter.name for parameter in build("extends: transformer_base\ntie: []\n").parameters}
    assert len(listed) == 5 and set(listed) <= names


def test_table_of_primitives_has_all_with_their_arguments() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", PAGE.split("## Primitives")[1].split("##")[0], re.MULTILINE)
    table = {name: arguments for names, arguments in rows for name in re.findall(r"`(\w+)`", names)}
    assert table.keys() == PRIMITIVES.keys()
    for name, primitive in PRIMITIVES.items():
        written = re.findall(r"`(\w+)`", table[name])
        assert written == [] if primitive.transparent else written == list(primitive.takes)


def test_page_names_every_kind_of_argument() -> None:
    assert all(f"`{kind}`" in PAGE for kind in TAKEN_KINDS)


def test_page_shows_the_error_as_it_is(problems: Problems) -> None:
    (problem,) = problems("extends: transformer_base\nsizes: {heads: -8}\n")
    text = f"error: {problem}"
    assert "\n".join(f"    {line}" for line in text.split("\n")) in PAGE


def test_page_states_the_bounds() -> None:
    bounds = f"{tree.MAX_BYTES // 1024} KiB, {tree.MAX_NODES:,} values after aliases, {tree.MAX_DEPTH} levels, "
    bounds += f"{elaborate.MAX_STEPS:,} steps, {MAX_PARAMETERS:,} parameters"
    assert bounds in " ".join(PAGE.split())


def test_base_spec_fits_one_screen() -> None:
    assert len((SHIPPED / "transformer_base.yaml").read_text().splitlines()) <= 64
    assert load_tree(SHIPPED / "transformer_base.yaml").get("model") is not None
