"""The certificate of a language model passes correct sampling, and fails wrong sampling."""

from pathlib import Path

import pytest

from tests.task_specs import write_task
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.sampling_stages import sampling_stages
from xformc.compiler.certify.subject import Subject
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.search import random_numbers as uniform
from xformc.format.certificate import Stage


def stages_of(folder: Path, *, engine_seed: int = 1) -> dict[str, Stage]:
    """The stages of an engine of these weights, held against the training form of the weights of seed 1."""
    program = compile_engine(write_task(folder, "language_model"))
    module = TorchModule(program.graph, seed=1).eval()
    other = TorchModule(program.graph, seed=engine_seed).eval()
    weights = Subject(program, other, folder).initializers()
    save_models(emit_engine(program, weights), weights, folder)
    return {stage.name: stage for stage in sampling_stages(Subject(program, module, folder), print)}


def test_stages_pass_what_samples_rightly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = stages_of(tmp_path)
    assert all(stage.passed for stage in stages.values())
    assert list(stages) == ["greedy", "sample", "edits", "batch", "stream", "draft", "refill"]
    assert capsys.readouterr().out.splitlines() == [f"certify: {name}" for name in stages]
    assert "beyond rounding" in stages["sample"].detail and "(0 ends)" not in stages["sample"].detail


def test_stages_find_other_weights(tmp_path: Path) -> None:
    stages = stages_of(tmp_path, engine_seed=2)
    assert not stages["greedy"].passed and not stages["sample"].passed
    assert stages["greedy"].detail.startswith("token ")


def test_stages_find_other_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uniform, "LAST_SHIFT", 30)
    stages = stages_of(tmp_path)
    assert stages["greedy"].passed and stages["batch"].passed
    assert not stages["sample"].passed
