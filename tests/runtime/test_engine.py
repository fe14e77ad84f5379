import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_engine import SENTENCES

from xformc.errors import UserError
from xformc.runtime import Engine, Hypothesis, SearchArguments, load
from xformc.runtime.session import Session


@contextmanager
def another_user(file: Path) -> Generator[None]:
    """Be a user who may not read the file; root may read all, so it becomes another one."""
    file.chmod(0)
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


EMPTY = [Hypothesis("", 0.0, ())]


def test_the_runtime_imports_nothing_large_that_few_need() -> None:
    large = "{'asyncio', 'numpy.random', 'onnx', 'sentencepiece', 'ssl', 'torch'}"
    code = f"import sys, xformc.runtime.engine; print({large} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_translate_keeps_the_order_whatever_the_batches(engine: Engine) -> None:
    texts = [SENTENCES[index % 8] for index in range(50)]
    for batch_tokens in (1, 40, 10_000):
        results = engine.translate(texts, max_batch_tokens=batch_tokens)
        assert [best.text for best, *_ in results] == texts


def test_translate_gives_each_text_what_it_has_alone(engine: Engine) -> None:
    together = engine.translate(SENTENCES, n_best=3)
    assert together == [engine.translate([text], n_best=3)[0] for text in SENTENCES]


def test_translate_returns_n_best_by_falling_score(engine: Engine) -> None:
    [found] = engine.translate(["hello world"], beam_size=5, n_best=5)
    scores = [one.score for one in found]
    assert len(found) == 5
    assert scores == sorted(scores, reverse=True)
    assert found[0].tokens[-1] == 3


def test_translate_passes_the_length_penalty_on(engine: Engine) -> None:
    [[plain]] = engine.translate(["hello world"], length_penalty=0)
    [[penalised]] = engine.translate(["hello world"], length_penalty=1.0)
    length = len(plain.tokens)
    assert plain.score == -length
    assert penalised.score == pytest.approx(-length / ((5 + length) / 6))


def test_translate_limits_the_length_by_factor_and_offset(engine: Engine) -> None:
    [[best]] = engine.translate(["hello world"], max_length_factor=0, max_length_offset=2)
    assert len(best.tokens) == 2


def test_translate_leaves_empty_lines_empty_without_the_model(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", None)
        assert engine.translate(["", "   ", "\t", "\u3000"]) == [EMPTY] * 4
    mixed = engine.translate(["", "hello world", " "])
    assert [found[0].text for found in mixed] == ["", "hello world", ""]


def test_translate_of_nothing_is_nothing(engine: Engine) -> None:
    assert engine.translate([]) == []


@pytest.mark.parametrize("text", ["hello 漢 world", "漢", "hello \N{GRINNING FACE}", "hello\0world", "漢 hello"])
def test_translate_writes_nothing_for_unknown_characters(engine: Engine, text: str) -> None:
    [[best]] = engine.translate([text])
    assert 1 in best.tokens
    assert "⁇" not in best.text
    assert best.text == " ".join(best.text.split())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=5), st.integers(1, 60))
def test_translate_takes_any_text(engine: Engine, texts: list[str], batch_tokens: int) -> None:
    results = engine.translate(texts, max_batch_tokens=batch_tokens)
    assert len(results) == len(texts)
    assert all("⁇" not in found[0].text for found in results if "⁇" not in "".join(texts))


def test_translate_refuses_a_long_text_naming_its_line(engine: Engine) -> None:
    with pytest.raises(UserError) as caught:
        engine.translate(["hello", "two dogs " * 2400])
    assert caught.value.place == "line 2"
    assert "takes at most 4,096" in caught.value.message
    assert "truncate=True" in str(caught.value.hint) and "max_batch_tokens=28804 allows" in str(caught.value.hint)


def test_translate_takes_longer_texts_in_larger_batches(engine: Engine) -> None:
    [[best]] = engine.translate(["two dogs " * 2400], max_batch_tokens=40_000, beam_size=1)
    assert best.text == "two dogs " * 2399 + "two dogs"


def test_translate_cuts_a_long_text_on_demand_and_warns(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        [_, [best]] = engine.translate(["hello", "two dogs " * 2400], truncate=True)
    assert len(best.tokens) == 4096
    assert best.tokens[-1] == 3
    assert "line 2: cut from" in caplog.text


def test_translate_obeys_the_models_own_bound(engine: Engine) -> None:
    source = replace(engine.manifest.inputs["source"], longest=4)
    short = replace(engine, manifest=replace(engine.manifest, inputs={**engine.manifest.inputs, "source": source}))
    with pytest.raises(UserError, match="takes at most 4"):
        short.translate(["the quick brown fox"])
    with pytest.raises(UserError, match="takes at most 4"):
        short.search([[5, 6, 7, 8, 3]])


def test_translate_refuses_one_text_in_place_of_a_list(engine: Engine) -> None:
    with pytest.raises(UserError, match="a list of texts"):
        engine.translate("hello")


def test_translate_refuses_what_is_not_unicode(engine: Engine) -> None:
    with pytest.raises(UserError, match="line 1: not valid Unicode"):
        engine.translate(["\udc80"])


def test_translate_refuses_an_engine_without_a_tokenizer(engine: Engine) -> None:
    with pytest.raises(UserError, match="has no tokenizer"):
        replace(engine, tokenizer=None).translate(["hello"])


def test_translate_checks_its_options_before_the_first_text(engine: Engine) -> None:
    with pytest.raises(UserError, match="beam_size"):
        engine.translate_stream([], beam_size=0)
    with pytest.raises(UserError, match="window must be 1 or more, not 0"):
        engine.translate_stream([], window=0)
    with pytest.raises(TypeError, match=r"unknown search options: beam; there are .*; did you mean 'beam_size'"):
        engine.translate([], **{"beam": 4})  # pyright: ignore[reportArgumentType]


def test_translate_stream_reads_no_further_ahead_than_its_window(engine: Engine) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield SENTENCES[read % 8]

    stream = engine.translate_stream(endless(), window=10)
    results = [next(stream)[0].text for _ in range(25)]
    assert results == [SENTENCES[number % 8] for number in range(1, 26)]
    assert read == 30


def test_translate_stream_counts_lines_across_windows(engine: Engine) -> None:
    stream = engine.translate_stream(["hello"] * 6 + ["two dogs " * 2000], window=2)
    assert len([next(stream) for _ in range(6)]) == 6
    with pytest.raises(UserError, match="line 7"):
        next(stream)


def test_translate_may_be_called_from_several_threads(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: engine.translate(SENTENCES), range(8)))
    assert results == [results[0]] * 8


def test_search_takes_ids_and_returns_arrays(engine: Engine) -> None:
    found = engine.search([[5, 6, 3], [7, 3, 0]], n_best=2)
    assert found.tokens.tolist() == [[[5, 6, 3]] * 2, [[7, 3, 0]] * 2]
    assert found.lengths.tolist() == [[3, 3], [2, 2]]
    assert (found.tokens.dtype, found.lengths.dtype, found.scores.dtype) == (np.int64, np.int64, np.float32)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[5, 3], [5]], r"source\[1\] has 1 item, and source\[0\] has 2 items"),
        ([5, 3], "shape"),
        ([[0.5, 3.0]], "integers"),
        ([[5, -1]], "from 0 to"),
        ([[5, 10**6]], "from 0 to"),
        ([[5, 3], [0, 0]], "one or more tokens"),
        ([[5, 0, 3]], "one or more tokens"),
        ([[0, 5, 3]], "one or more tokens"),
    ],
)
def test_search_refuses_wrong_ids(engine: Engine, source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        engine.search(source)


def test_load_refuses_a_thread_count_of_zero(engine: Engine, copy_engine: Any) -> None:
    with pytest.raises(UserError, match="threads must be an integer from 1"):
        load(copy_engine, threads=0)


def test_a_hypothesis_that_was_not_found_is_left_out(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def sparse(session: Session, *arguments: Any) -> Any:
        tokens, lengths, scores = run(session, *arguments)
        scores[:, 1:] = -np.inf
        return tokens, lengths, scores

    monkeypatch.setattr(Session, "run", sparse)
    arguments: SearchArguments = {"n_best": 3}
    assert [len(found) for found in engine.translate(["hello world"], **arguments)] == [1]


def test_translate_gives_the_same_with_several_workers(copy_engine: Path) -> None:
    texts = [SENTENCES[(index * 5) % 8] for index in range(300)]
    expected = [[text] for text in texts]
    for loaded in (load(copy_engine, threads=2, workers=2), load(copy_engine, threads=1)):
        for workers in (None, 1, 3):
            found = loaded.translate_stream(texts, workers=workers, window=50, max_batch_tokens=600)
            assert [[best.text for best in hypotheses] for hypotheses in found] == expected


def test_an_engine_that_was_replaced_is_not_mixed_with_the_loaded_one(own_engine: Path, endless_engine: Path) -> None:
    with load(own_engine, threads=1) as engine:
        shutil.copytree(endless_engine, own_engine, dirs_exist_ok=True)
        assert engine.translate(["hello world"])[0][0].text == "hello world"
        with pytest.raises(UserError, match="the engine in this folder has changed since it was loaded") as caught:
            engine.translate(["hello world"], workers=2)
        assert caught.value.place == str(own_engine)
        assert caught.value.hint == "load it again with xformc.load"


def test_an_engine_that_is_cut_while_it_is_replaced_is_named(own_engine: Path) -> None:
    with load(own_engine, threads=1) as engine:
        (own_engine / "model.onnx").write_bytes(b"")
        with pytest.raises(UserError, match=r"model.onnx: has 0 bytes"):
            engine.translate(["hello world"], workers=2)


def test_an_engine_stays_the_one_to_which_a_link_led(
    own_engine: Path, endless_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "current").symlink_to(own_engine)
    monkeypatch.chdir(tmp_path)
    with load("current", threads=1) as engine:
        (tmp_path / "current").unlink()
        (tmp_path / "current").symlink_to(endless_engine)
        monkeypatch.chdir("/")
        assert engine.translate(["hello world"], workers=2)[0][0].text == "hello world"


def test_a_batch_holds_sources_and_hypotheses_at_their_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run, sources = Session.run, list[tuple[int, ...]]()

    def recorded(session: Session, feeds: Any, *arguments: Any) -> Any:
        sources.append(feeds["source"].shape)
        return run(session, feeds, *arguments)

    monkeypatch.setattr(Session, "run", recorded)
    options: SearchArguments = {"beam_size": 3, "max_length_factor": 2.0, "max_length_offset": 10}
    texts = ["hello world"] * 20
    length = len(engine.translate(texts[:1], **options)[0][0].tokens)
    sources.clear()
    engine.translate(texts, max_batch_tokens=7 * (length + 3 * (2 * length + 10)) + 1, **options)
    assert sources == [(7, length), (7, length), (6, length)]


@pytest.mark.parametrize("name", ["workers", "max_batch_tokens", "window"])
def test_translate_refuses_less_than_one(engine: Engine, name: str) -> None:
    for value in (0, -1, 1.5):
        with pytest.raises(UserError, match=f"{name} must be 1 or more, not {value}"):
            engine.translate_stream([], **{name: value})  # pyright: ignore[reportArgumentType]


def test_load_refuses_too_many_workers(copy_engine: Path) -> None:
    with pytest.raises(UserError, match="workers must be at most 1024"):
        load(copy_engine, workers=10_000)


def test_what_is_no_text_is_named(engine: Engine) -> None:
    wrong: Any = [["a", "b"]]
    with pytest.raises(UserError, match=r"line 1: a text must be a str, found list\nhint: engine.search takes ids"):
        engine.translate(wrong)


def test_an_engine_that_may_not_be_read_is_named(own_engine: Path) -> None:
    with another_user(own_engine / "model.onnx"):
        for verify_hashes in (True, False):
            with pytest.raises(UserError, match=r"cannot be read: Permission denied\nhint: let the user") as caught:
                load(own_engine, verify_hashes=verify_hashes)
            assert str(caught.value.place).startswith(str(own_engine))


def test_a_name_that_the_system_refuses_is_named() -> None:
    with pytest.raises(UserError, match="xxx: cannot be read: File name too long"):
        load("x" * 300)


def test_a_device_that_there_is_not_is_named(copy_engine: Path) -> None:
    wrong: Any = "auto"
    with pytest.raises(UserError, match=r"device is 'auto'\nhint: use cpu or cuda"):
        load(copy_engine, device=wrong)


def test_a_lack_of_memory_is_named() -> None:
    class Lacking:
        def run(self, feeds: Any, options: Any) -> list[Any]:
            raise RuntimeError("[ONNXRuntimeError] : 6 : while running Loop node.\nFailed to allocate memory of size 9")

    session = Session(lambda workers: Lacking(), ("tokens",), "engine")
    with pytest.raises(UserError, match="the model failed on this input: out of memory") as caught:
        session.run({})
    assert caught.value.hint == "lower max_batch_tokens, or use a narrower beam"

    def lack(workers: int) -> Any:
        raise MemoryError

    with pytest.raises(
        UserError, match="the model cannot be loaded: out of memory\nhint: give the process more memory"
    ):
        Session(lack, ("tokens",), "engine")
