"""The documentation site has every page. Links are checked by `make site`, which fails at a broken one."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_every_page_is_in_the_contents() -> None:
    contents = set(re.findall(r"^[\w/]+$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE))
    included = {
        found
        for name in contents
        for found in re.findall(r"^```\{include\} (\w+)\.md", (DOCS / f"{name}.md").read_text(encoding="utf-8"))
    }
    assert {page.stem for page in DOCS.glob("*.md")} - contents - included == {"index"}


def test_every_record_is_in_the_index_of_decisions() -> None:
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\d[^)]+)\)", index)) == {path.name for path in (DOCS / "adr").glob("0*.md")}


def test_make_lists_the_site() -> None:
    found = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    assert re.search(r"^site +\S", found.stdout, re.MULTILINE)
