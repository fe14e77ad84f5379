"""Specs as text, and their errors."""

from collections.abc import Callable
from pathlib import Path

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.graph.graph import Graph
from xformc.compiler.spec import Problem, SpecError, load_spec

Build = Callable[[str], Graph]
Problems = Callable[[str], tuple[Problem, ...]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """The graph of a spec's text, in a file model.yaml of an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> Graph:
        path = Path("model.yaml")
        path.write_text(text, encoding="utf-8")
        return compile_spec(load_spec(path))

    return run


@pytest.fixture
def problems(build: Build) -> Problems:
    """The problems of a spec's text."""

    def run(text: str) -> tuple[Problem, ...]:
        with pytest.raises(SpecError) as error:
            build(text)
        return error.value.problems

    return run
