"""The benchmark of beam searches: its rows, and the systems that it leaves out."""

import re

import pytest

pytest.importorskip("ctranslate2")
pytest.importorskip("transformers")

from benchmarks import peers
from tests.runtime.kernel_session import kernel_library

TINY = {"vocab_size": 60, "d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2}


def test_both_search_to_the_same_length_and_find_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel_library()
    monkeypatch.setattr(peers, "SIZES", TINY)
    monkeypatch.setattr(peers, "SETTINGS", {"default": {}})
    monkeypatch.setattr("benchmarks.decode.speed.VOCABULARY", 60)
    monkeypatch.setattr("benchmarks.decode.speed.SETTLE", 0.0)
    chosen = ["--beside", "ctranslate2", "openvino", "--precisions", "float32", "--batches", "1", "3"]
    monkeypatch.setattr("sys.argv", ["peers", *chosen, "--length", "6", "--rounds", "1", "--threads", "1"])
    peers.main()
    left_out, *rows = capsys.readouterr().out.splitlines()
    assert left_out == "openvino left out: no --openvino PYTHON"
    assert [row for row in rows if not row.startswith(" ")] == ["float32, batch of 1", "float32, batch of 3"]
    assert [row.split()[0] for row in rows if row.startswith(" ")] == ["xformc", "ctranslate2"] * 2
    assert re.findall(r"=\d of \d", "".join(rows)) == ["=1 of 1", "=3 of 3"]


def test_the_faster_setting_of_ctranslate2_counts() -> None:
    times = {
        "xformc": [0.001, 0.003],
        "ctranslate2 4 (default)": [0.009, 0.009],
        "ctranslate2 4 (AVX512)": [0.004, 0.004],
    }
    first, second = peers.lines(times, {name: [["t4"], ["t5"]] for name in times})
    assert first.split() == ["xformc", "2.0", "ms"]
    assert " ".join(second.split()) == "ctranslate2 4 (AVX512) 4.0 ms 2.00 (1.33 to 4.00) =2 of 2"
