"""`make test-gpu` and `make bench-gpu` on a CPU with tiny models: all rows run, or give a reason."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from laws.settings import TIMES

from benchmarks.gpu.decoding import TINY, sentences
from benchmarks.gpu.players import Engine, Setting
from benchmarks.gpu.report import Missing, Report
from benchmarks.gpu.traffic import bytes_of_step
from benchmarks.gpu.training import flops, random_batch
from xformc.compiler.pipeline import run_passes

ROOT = Path(__file__).parent.parent.parent
CPU = torch.device("cpu")


def run(module: str, out: Path, *options: str) -> list[dict[str, Any]]:
    """The rows that the module writes."""
    command = [sys.executable, "-m", module, "--device", "cpu", "--no-compile", "--out", str(out), *options]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.iterdir()
    return json.loads(path.read_text())["rows"]


@pytest.mark.skipif(not TIMES, reason="takes long; LAWS=1 runs it, and `make bench-gpu` itself")
def test_every_benchmark_gives_figures_or_a_reason(tmp_path: Path) -> None:
    rows = run("benchmarks.gpu", tmp_path, "--quick")
    assert [row for row in rows if row.get("failed")] == []
    decoding = [row for row in rows if "player" in row]
    assert {(row["player"], row["beam"], row["batch"]) for row in decoding} == {
        (player, beam, batch)
        for player in ("xformc cuda", "xformc tensorrt", "Hugging Face", "CTranslate2")
        for beam in (1, 2)
        for batch in (1, 3)
    }
    assert all(row["tokens_per_second"] > 0 for row in decoding if row["player"] == "xformc cuda")
    assert all("reason" in row or row["tokens_per_second"] > 0 for row in decoding)
    assert [row["training"] for row in rows if "training" in row] == ["xformc", "torch.nn.Transformer"]
    assert all(0 < row["model_flops_utilisation"] < 10 for row in rows if "training" in row)


def test_every_test_passes_or_gives_a_reason(tmp_path: Path) -> None:
    specs, precisions = ("transformer_base",), ("float32", "int8_calibrated")
    rows = run("tests.gpu", tmp_path, "--specs", *specs, "--precisions", *precisions)
    assert [row for row in rows if "failed" in row] == []
    assert rows[0]["step"] == 2
    certified = {(row["certificate"], row["target"], row["precision"]) for row in rows if row.get("passed")}
    assert {(name, "cuda", "float32") for name in specs} <= certified
    assert {(name, "tensorrt", precision) for name in specs for precision in precisions} <= certified
    assert not any(target == "cuda" and precision != "float32" for _, target, precision in certified)
    assert {row["module"] for row in rows if "module" in row} == {*specs}


def test_a_row_ends_in_time_or_with_the_reason(tmp_path: Path) -> None:
    report = Report(tmp_path / "rows.json", "rows", time.monotonic() + 60, CPU)

    def wait() -> dict[str, Any]:
        while True:
            try:
                time.sleep(10)
            except Exception:
                continue

    def miss() -> dict[str, Any]:
        raise Missing("no GPU")

    began = time.monotonic()
    assert report.row({"row": 1}, wait, most=0.3)["reason"].startswith("out of time")
    assert time.monotonic() - began < 5
    assert report.row({"row": 2}, miss)["reason"] == "no GPU"
    assert report.row({"row": 3}, lambda: {"value": 1 / 0})["failed"]
    report.deadline = time.monotonic()
    assert report.row({"row": 4}, lambda: {"value": 1})["reason"].startswith("out of time")
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 4


def test_the_bytes_of_a_step_are_weights_and_caches() -> None:
    decoder = run_passes(Setting(TINY % 60, CPU, "float32").program("portable")).decoder
    layers, width, inner, vocabulary, source, length = 2, 16, 24, 60, 25, 9
    attentions = 2 * (width * width + width) + 4 * (width * width + width)  # cross: query, output; self: all four
    weights = layers * (attentions + 2 * width * inner + inner + width + 6 * width) + vocabulary * width
    caches = 2 * layers * width * (3 * source + 3 * 4 * ((length + 1) // 2))
    found = bytes_of_step(decoder, 4, batch=3, beam=4, source=source, length=length)
    assert found == 4 * (weights + caches)


def test_the_operations_of_training_are_six_for_each_weight_and_token() -> None:
    spec = Setting(TINY % 60, CPU, "float32").spec
    batch = random_batch(spec, 3, CPU)
    layers, width, inner, vocabulary, tokens = 2, 16, 24, 60, 64
    weights = layers * (3 * 4 * width * width + 2 * 2 * width * inner) + vocabulary * width
    attention = layers * 3 * 2 * tokens * width
    assert flops(spec, batch) == 6 * 3 * tokens * (weights + attention)


def test_outputs_have_the_length_that_was_asked_for(tmp_path: Path) -> None:
    engine = Engine(Setting(TINY % 60, CPU, "float32"), "cuda", tmp_path / "engine")
    engine.decode(sentences(2), 2, 7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("module", ["benchmarks.gpu", "tests.gpu"])
def test_without_a_gpu_one_line_says_so(module: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", module, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith("error: PyTorch finds no GPU\nhint: --device cpu")
    assert not (tmp_path / "out").exists()
