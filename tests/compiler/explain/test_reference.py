"""The reference page in docs matches the compiler."""

from pathlib import Path

from xformc.compiler.explain.reference import reference
from xformc.compiler.graph.primitives import PRIMITIVES

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"


def test_reference_is_as_make_docs_writes_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_every_primitive_and_op_says_what_it_does() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert all(row[-1].rstrip(" |") for row in rows)
    assert {row[0].strip("|` ") for row in rows} >= PRIMITIVES.keys()


def test_what_is_optional_has_its_default() -> None:
    assert "| `rms_norm` | [`epsilon` number (1e-06)], [`over` axes], [`gain` flag (true)]" in reference()
