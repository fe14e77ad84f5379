import subprocess
import sys
from pathlib import Path

import pytest
from task_specs import SPECS, write_task
from tiny_engine import SENTENCES

from xformc.compiler.build import build_engine
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.checks.measure import Turn, measure_latency, measure_turns, quantile, throughputs, timed_load
from xformc.runtime.checks.workload import random_workload, text_workload
from xformc.runtime.stream import Batching


def test_quantiles_are_those_of_the_sorted_values() -> None:
    values = [float(value) for value in range(1001)]
    assert [quantile(values[::-1], share) for share in (0.5, 0.9, 0.99)] == [500.0, 900.0, 990.0]
    assert quantile([3.0], 0.99) == 3.0


def test_peak_memory_grows_with_what_is_held() -> None:
    """In a process of its own: in this one the peak may be long ago."""
    lines = (
        "from xformc.runtime.checks.measure import peak_memory",
        "before = peak_memory()",
        "held = b'x' * (64 << 20)",
        "print(peak_memory() - before)",
    )
    grown = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True, text=True).stdout
    assert 32 << 20 < int(grown) < 128 << 20


def test_a_timed_load_gives_the_engine(copy_engine: Path) -> None:
    engine, loading = timed_load(copy_engine, 1)
    assert engine.translate(["hello world"])[0][0].text == "hello world"
    assert loading.open > 0
    assert loading.check > 0


def test_texts_are_counted_in_tokens_written(engine: Engine) -> None:
    work = text_workload(engine, ["", *SENTENCES, "  "], {"beam_size": 1})
    expected = [len(best.tokens) for [best] in engine.translate(SENTENCES)]
    assert list(work.run(work.items, Batching(2))) == expected
    with pytest.raises(UserError, match="holds no text"):
        text_workload(engine, ["", " "], {})


def test_random_sentences_are_the_same_and_fit_the_engine(engine: Engine) -> None:
    work, again = random_workload(engine, {}, 30), random_workload(engine, {}, 30)
    rows = [row["source"].tolist() for row in work.items]
    assert rows == [row["source"].tolist() for row in again.items]
    assert list(work.run(work.items, Batching(1))) == [len(ids) for ids in rows]


def test_latency_and_throughput_are_of_all_plans(engine: Engine) -> None:
    work = random_workload(engine, {}, 30)
    latency = measure_latency(work, 0.05)
    assert 0 < latency.p50 <= latency.p90 <= latency.p99
    assert latency.count >= 8
    plans = [Batching(1, 500), Batching(2, 5000)]
    found = throughputs(list(measure_turns(work, plans, 1 / latency.p50, 0.05)))
    assert [(one.workers, one.max_batch_tokens) for one in found] == [(1, 500), (2, 5000)]
    assert all(one.tokens_per_second > one.examples_per_second >= one.lowest > 0 for one in found)
    assert all(one.highest >= one.examples_per_second for one in found)


def test_the_round_in_the_middle_counts() -> None:
    one, other = Batching(1, 500), Batching(2, 500)
    turns = [Turn(one, 1.0, 10, 30, 7), Turn(other, 1.0, 5, 5, 8), Turn(one, 2.0, 10, 20, 9), Turn(one, 1.0, 20, 80, 9)]
    fast, slow = throughputs(turns)
    assert (fast.examples_per_second, fast.tokens_per_second, fast.lowest, fast.highest) == (10, 30, 5, 20)
    assert (fast.count, fast.peak, slow.count, slow.workers) == (40, 7, 5, 2)


@pytest.mark.parametrize("name", [*SPECS])
def test_random_examples_fit_engines_of_every_kind(tmp_path: Path, name: str) -> None:
    build_engine(write_task(tmp_path, name), None, None, "portable", tmp_path / "engine")
    work = random_workload(load(tmp_path / "engine", threads=1), {}, 3)
    assert len(list(work.run(work.items, Batching(1)))) == 3
