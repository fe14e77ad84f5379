"""Both runtimes give the recorded result or error of every conformance case, and the same bits as each other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.cases import Case, drop_text, outcome, read_cases
from tests.runtime.kernel_session import kernel_library
from xformc.runtime import load
from xformc.runtime.libxformc import CppEngine

CASES = read_cases()
named = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def test_cases_have_one_name_each() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert {case["call"] for case in CASES} == {
        "align",
        "stream_tokens",
        "translate",
        "transcribe",
        "search",
        "score",
        "generate",
        "predict",
        "load",
    }


@named
def test_python_gives(case: Case, tmp_path: Path) -> None:
    assert_recorded(outcome(case, load, tmp_path), case)


@named
def test_cpp_gives(case: Case, tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "python").mkdir()
    found, expected = outcome(case, CppEngine, tmp_path), outcome(case, load, tmp_path / "python")
    if case["call"] == "search" and "result" in found:
        found = {"result": drop_text(found["result"])}
    assert_recorded(found, case)
    assert found == expected, "the runtimes differ"


def assert_recorded(found: dict[str, Any], case: Case) -> None:
    """Scores may differ in their last bits from one kind of processor to another; all else is exact."""
    expected = {key: case[key] for key in ("result", "error") if key in case}
    scores, rest = _split(found)
    expected_scores, expected_rest = _split(expected)
    assert rest == expected_rest
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-6)


def _split(found: Any) -> tuple[list[float], Any]:
    """Return the numbers of a result that are no integers, and the result without them."""
    if isinstance(found, float):
        return [found], None
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else None
    if items is None:
        return [], found
    parts = [(key, *_split(item)) for key, item in items]
    return [score for _, scores, _ in parts for score in scores], [(key, rest) for key, _, rest in parts]
