"""The README is accurate: it lists all specs, its commands run, and its example compiles."""

import re
from pathlib import Path

import pytest

from xformc.cli import app
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.format.tasks import NAMED
from xformc.specs import shipped_specs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROWS = re.findall(r"^\| (.+?) \| (\[.+?) \| (.+?) \|$", README, re.MULTILINE)
"""The rows of the table of architectures: system, links to specs, tasks."""


def linked(text: str) -> set[Path]:
    """The specs that a text links to, those of a folder included."""
    found = {ROOT / link for link in re.findall(r"\]\((specs/[^)]+)\)", text)}
    return {path for link in found for path in (link.rglob("*.yaml") if link.is_dir() else [link])}


def returned(path: Path) -> set[str]:
    """The task of a spec, or the kinds of its results."""
    spec = load_spec(path)
    return {spec.task} if spec.task in NAMED else {result.kind for result in spec.results}


def test_every_row_names_specs_of_its_tasks() -> None:
    assert len(ROWS) >= 20
    for system, specs, tasks in ROWS:
        assert set[str]().union(*map(returned, linked(specs))) == set(tasks.split(", ")), system


def test_every_shipped_spec_is_in_the_table() -> None:
    named = set[Path]().union(*(linked(specs) for _, specs, _ in ROWS))
    assert {path.resolve() for path in shipped_specs().values()} - {path.resolve() for path in named} == set()


def test_example_compiles_and_decodes(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example, encoding="utf-8")
    assert compile_engine(load_spec(tmp_path / "mine.yaml")).steps is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_of_the_pages_exist(page: Path) -> None:
    known = {(item.name or getattr(item.callback, "__name__", "")) for item in app.registered_commands}
    named = set(re.findall(r"(?:`|^    |\$ |\| )xformc ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named - known == set()


def test_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", README, re.MULTILINE)) <= set(targets)
