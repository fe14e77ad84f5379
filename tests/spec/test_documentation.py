"""The page on the language is correct: its examples compile, its errors are real, its paths exist."""

import re
from pathlib import Path

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import elaborate, load_spec, tree
from xformc.compiler.spec.load import load_tree
from xformc.compiler.spec.signature import TAKEN_KINDS
from xformc.compiler.spec.tasks import DECODE
from xformc.compiler.spec.writer import MAX_PARAMETERS
from xformc.errors import UserError
from xformc.format.tasks import NAMED, TASKS
from xformc.specs import SHIPPED

from .conftest import Build

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "language.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```\n+((?:    [^\n]*\n)*)", PAGE, re.DOTALL)
"""Each spec of the page, and the indented lines that follow it: its error, if it has one."""

RIGHT = [spec for spec, after in EXAMPLES if not after.startswith("    error: ")]
WRONG = [(spec, after) for spec, after in EXAMPLES if after.startswith("    error: ")]


def model_file(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("example", RIGHT, ids=[str(index) for index in range(len(RIGHT))])
def test_example_compiles_and_decodes(example: str, tmp_path: Path) -> None:
    assert compile_engine(load_spec(model_file(tmp_path, example))).graph.parameter_count() > 0


@pytest.mark.parametrize(("example", "error"), WRONG, ids=[str(index) for index in range(len(WRONG))])
def test_error_is_as_the_page_shows(example: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model_file(tmp_path, example)
    with pytest.raises(UserError) as caught:
        compile_engine(load_spec(Path("model.yaml")))
    assert f"error: {caught.value}\n" == error.replace("\n    ", "\n").removeprefix("    ")


def test_page_shows_a_mistake_and_a_refusal() -> None:
    assert len(RIGHT) >= 13
    assert sorted("step by step" in error for _, error in WRONG) == [False, True]


def test_axes_that_the_page_writes_beside_steps_are_theirs(tmp_path: Path) -> None:
    (example,) = (spec for spec in RIGHT if "# [batch, text" in spec)
    graph = load_spec(model_file(tmp_path, example)).graph()
    axes = {value.name.removesuffix("/weight"): list(value.type.names) for value in graph.parameters}
    axes |= {value.name: list(value.type.names) for node in graph.nodes for value in node.outputs}
    written = dict(re.findall(r"^      (\w+): .*# \[(.*)\]$", example, re.MULTILINE))
    assert len(written) == 7
    for name, listed in written.items():
        assert axes[f"decoder/0/causal_self_attention/{name}"] == listed.split(", ")


def test_shipped_attention_is_fused_and_another_form_is_not(tmp_path: Path) -> None:
    (example,) = (spec for spec in RIGHT if "# [batch, text" in spec)
    kinds = [
        {node.op.kind for node in compile_spec(load_spec(path)).nodes}
        for path in (SHIPPED / "gpt.yaml", model_file(tmp_path, example))
    ]
    assert ["attention" in found for found in kinds] == [True, False]
    assert ["softmax" in found for found in kinds] == [False, True]


def test_parameter_paths_of_the_page_exist(build: Build) -> None:
    listed = re.findall(r"^    ((?:encoder|decoder|logits)/\S+)$", PAGE, re.MULTILINE)
    names = {parameter.name for parameter in build("extends: transformer_base\ntie: []\n").parameters}
    assert len(listed) == 5 and set(listed) <= names


def test_page_names_every_kind_of_argument() -> None:
    assert all(f"`{kind}`" in PAGE for kind in TAKEN_KINDS)


def test_page_names_every_task_and_its_settings_of_decoding() -> None:
    for name in NAMED:
        settings = ", ".join(f"`{key}`" for key in DECODE[TASKS[name].decoding]) or "none"
        assert f"| `{name}` | {settings}" in PAGE


def test_page_states_the_bounds() -> None:
    bounds = f"{tree.MAX_BYTES // 1024} KiB, {tree.MAX_NODES:,} values after aliases, {tree.MAX_DEPTH} levels, "
    bounds += f"{elaborate.MAX_STEPS:,} steps, {MAX_PARAMETERS:,} parameters"
    assert bounds in " ".join(PAGE.split())


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_base_spec_fits_one_screen() -> None:
    assert len((SHIPPED / "transformer_base.yaml").read_text().splitlines()) <= 64
    assert load_tree(SHIPPED / "transformer_base.yaml").get("model") is not None
