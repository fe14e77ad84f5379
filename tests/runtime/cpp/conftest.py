"""Engines of each task, and xformc-run, for the tests of the C++ runtime."""

from pathlib import Path

import pytest
from task_specs import LANGUAGE_MODEL, PAIRS, TAGGING, write_task
from tiny_engine import train_tokenizer

from tests.runtime.cpp.compiled import CPP, compile_program
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec


def build(folder: Path, text: str, labels: list[str] | None = None) -> Path:
    """An engine with random weights, which has a tokenizer for each of its inputs."""
    train_tokenizer(folder / "tokenizer.model")
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(folder / "spec.yaml")
    build_engine(
        spec, None, dict.fromkeys(spec.inputs, folder / "tokenizer.model"), "cpu", folder / "engine", labels=labels
    )
    return folder / "engine"


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("language_model"), LANGUAGE_MODEL)


@pytest.fixture(scope="session")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tagger"), TAGGING, ["ADJ", "DET", "NOUN", "größe", 'a "b"'])


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pairs"), PAIRS, ["no", "perhaps", "yes"])


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    build_engine(
        write_task(folder, "images"), None, None, "cpu", folder / "engine", labels=["cat", "dog", "hen", "owl"]
    )
    return folder / "engine"


@pytest.fixture(scope="session")
def xformc_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program xformc-run."""
    sources = [CPP / "xformc_run.cc", *sorted((CPP / "run").glob("*.cc")), CPP / "numbers.cc", CPP / "unicode.cc"]
    return compile_program(tmp_path_factory.mktemp("program") / "xformc-run", *sources)
