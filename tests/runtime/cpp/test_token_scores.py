"""Scores of given texts and of their tokens by libxformc, which are those of the Python runtime to the bit."""

from pathlib import Path

import pytest

from tests.runtime.kernel_session import kernel_library
from xformc.errors import UserError
from xformc.runtime import load
from xformc.runtime.checks.agreement import compare_runtimes
from xformc.runtime.libxformc import CppEngine

TEXTS = ["two dogs play", "", "hello world", "größe"]
PROMPTS = ["two dogs", "", "hello wor", "x"]


def test_scores_are_those_of_python(language_model: Path) -> None:
    kernel_library()
    whats = [stage.what for stage in compare_runtimes(language_model).stages if stage.value == 0]
    assert len(whats) == 2 and whats[1].startswith("scores: ")
    other = CppEngine(language_model)
    with load(language_model) as engine:
        assert other.score(TEXTS) == engine.score(TEXTS)
        assert other.score(PROMPTS, TEXTS) == engine.score(PROMPTS, TEXTS)
        assert other.score(["x " * 30], truncate=True) == engine.score(["x " * 30], truncate=True)
        for wrong in ["\ud800", "x " * 40_000]:
            with pytest.raises(UserError) as found:
                other.score([wrong])
            with pytest.raises(UserError) as expected:
                engine.score([wrong])
            assert found.value.message == expected.value.message and found.value.place == expected.value.place
    other.close()


def test_an_engine_without_them_says_so(copy_engine: Path) -> None:
    kernel_library()
    other = CppEngine(copy_engine)
    with pytest.raises(UserError, match="has no scores of tokens"):
        other.translate(["two"], token_scores=True)
    wanted = "copy is a translation engine; score needs a language_model engine"
    with pytest.raises(UserError, match=f"{wanted}\\n.*xformc_translate, with the texts as prefixes"):
        other.score(["two"])
    other.close()
