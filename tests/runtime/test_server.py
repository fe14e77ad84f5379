"""Batches that refill: texts join and leave, and each is what it is alone."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.serving import sampled_batch
from xformc.runtime.serving.continuations import Reply

SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES, max_positions: 64}
train: {max_length: 64}
"""
WINDOWS = SPEC.replace(", max_positions: 64}", ", window: 4}\nchoices: {positions: alibi, reach: window}")
PROMPT = "two dogs play in the snow"
SHAPES: list[dict[str, Any]] = [{"tokens_at_once": 1}, {"tokens_at_once": 3, "workers": 2}, {"workers": 3}, {}]
WORDS = ["one", "two", "dogs", "play", "a man", "rides"]


PAGE = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same engine for the targets cpu and native, and one with windows, with random weights."""
    path = tmp_path_factory.mktemp("server")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    for name, text in (("plain", SPEC), ("windows", WINDOWS)):
        (path / f"{name}.yaml").write_text(text.replace("PIECES", str(size)))
    build(path, "plain", "cpu", "cpu")
    return path


def build(folder: Path, name: str, target: str, out: str, *, like: str | None = None) -> Path:
    spec = load_spec(folder / f"{name}.yaml")
    arrays = None if like is None else engine_parameters(spec.graph(), folder / like / "model.onnx")
    build_engine(spec, arrays, {"text": folder / "tokenizer.model"}, target, folder / out)  # pyright: ignore[reportArgumentType]
    return folder / out


def attack(engine: Engine, schedules: int, *, exact: bool) -> int:
    """Check texts of random schedules against each alone; return how many were cancelled."""
    random, cancelled = Random(0), 0
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"top_k": 10, "top_p": 0.9, "temperature": 0.8},
        {"no_repeat_ngram_size": 1, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "suppress_tokens": [5]},
    ]
    for schedule in range(schedules):
        options, given = settings[schedule % 3], list[tuple[str, int, dict[str, Any], Reply]]()
        with engine.serve(slots=(1, 3, 8)[schedule // 3 % 3], **random.choice(SHAPES), **options) as server:
            for seed in range(10):
                prompt, most = " ".join(random.choices(WORDS, k=random.choice([0, 1, 3, 9]))), random.randint(1, 20)
                own = {"max_new_tokens": most, **random.choice([{}, *settings])}
                given.append((prompt, seed, own, server.submit(prompt, seed=seed, **own)))
                time.sleep(random.choice([0, 0, 0.002]))
            cancelled += given[-1][3].cancel()  # which can hardly have ended, as one of the others may
            cancelled += given[random.randrange(9)][3].cancel()
        for prompt, seed, own, reply in given:
            if not reply.cancelled():
                (alone,) = engine.generate([prompt], seed=seed, each=cast(Any, [own]), **options)
                found = reply.result(timeout=0)
                assert (found.text, found.tokens) == (alone.text, alone.tokens)
                assert found.score == alone.score if exact else found.score == pytest.approx(alone.score, abs=1e-4)
    return cancelled


@pytest.mark.processor
def test_a_text_is_what_it_is_alone_whoever_shares_its_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(folder / "cpu", threads=1) as engine:
        attack(engine, 3, exact=False)
        full = " ".join(["one"] * 63)
        while len(engine.tokenizer_of("text").encode_open("text", full)) > 63:
            full = full[:-1]
        prompts = [PROMPT, "", full, "two", "a man"] * 2
        together = engine.generate(prompts, seed=1, max_new_tokens=30)
        refilled = engine.generate(prompts, seed=1, max_new_tokens=30, slots=3)
        assert [one.tokens for one in refilled] == [one.tokens for one in together]
        warm = engine.generate(prompts, temperature=[0.0, 1.5] * 5, slots=3)
        alone = engine.generate(prompts, temperature=[0.0, 1.5] * 5)
        assert [one.tokens for one in warm] == [one.tokens for one in alone]
        stream = engine.generate_stream(iter(prompts), seed=1, max_new_tokens=30, slots=2, window=1)
        assert [one.tokens for one in stream] == [one.tokens for one in together]
    kernel_library()
    build(folder, "plain", "native", "native", like="cpu")
    build(folder, "windows", "native", "windows")
    with load(folder / "native", threads=1) as engine, load(folder / "windows", threads=1) as windows:
        assert attack(engine, 9, exact=True) + attack(windows, 3, exact=True) > 3
        steps, run = list[int](), sampled_batch.run_stateful

        def counted(model: Any, values: dict[str, Any]) -> dict[str, Any]:
            steps.append(int(values["count"]))
            return run(model, values)

        monkeypatch.setattr(sampled_batch, "PART", 3)  # prompts are read in several calls, without steps
        monkeypatch.setattr(sampled_batch, "run_stateful", counted)
        attack(engine, 6, exact=True)
        assert steps.count(0) > 9


def test_a_reply_gives_its_text_as_it_comes(folder: Path) -> None:
    async def read(reply: Reply) -> str:
        return "".join([piece async for piece in reply])

    with load(folder / "cpu", threads=1) as engine:
        whole = engine.generate([PROMPT, "one"], max_new_tokens=12)
        with engine.serve(slots=2, tokens_at_once=1, max_new_tokens=12) as server:
            replies = [server.submit(text, seed=seed) for seed, text in enumerate([PROMPT, "one"])]
            pieces = list(replies[0])
            assert "".join(pieces) == whole[0].text and len(pieces) > 2
            assert asyncio.run(read(replies[1])) == whole[1].text
            assert [reply.result().tokens for reply in replies] == [one.tokens for one in whole]
            assert not replies[0].cancel()


def test_texts_before_an_error_of_their_source_are_written(folder: Path) -> None:
    def texts() -> Iterator[str]:
        yield from WORDS[:4]
        raise OSError("the connection is closed")

    found = list[object]()
    with load(folder / "cpu", threads=1) as engine, pytest.raises(OSError, match="connection"):
        for one in engine.generate_stream(texts(), slots=2, max_new_tokens=3):
            found.append(one)
    assert len(found) == 4


def test_texts_are_cancelled_at_any_time(folder: Path) -> None:
    with load(folder / "cpu", threads=1) as engine:
        with engine.serve(slots=1, tokens_at_once=1, max_new_tokens=60, temperature=0.0) as server:
            first, second = server.submit("one"), server.submit("two", max_new_tokens=3)
            assert next(iter(first))
            assert first.cancel() and first.cancelled()
            assert second.result().tokens == engine.generate(["two"], max_new_tokens=3, temperature=0.0)[0].tokens
            with pytest.raises(CancelledError):
                first.result()
            assert len(list(first)) == 0
        waiting = [server_text(engine) for _ in range(2)]
        assert all(reply.cancelled() for reply in waiting)
        with pytest.raises(ZeroDivisionError), engine.serve(slots=1, max_new_tokens=60) as server:
            waiting = [server.submit("one") for _ in range(200)]
            raise ZeroDivisionError
        assert waiting[-1].cancelled()
        with pytest.raises(UserError, match="the server is closed"):
            server.submit("one")


def held(server: Any) -> Any:
    """A block in which the server's threads take no text."""
    return server._changed


def test_callbacks_end_no_server(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not even by what ends a thread."""

    def leave(_: object) -> None:
        sys.exit(3)

    with load(folder / "cpu", threads=1) as engine, engine.serve(slots=1, max_new_tokens=4) as server:
        with held(server):
            replies = [server.submit("one") for _ in range(3)]
            for reply in replies[:2]:
                reply.add_done_callback(leave)
        assert all(reply.result(timeout=60).tokens for reply in replies)
    assert caplog.text.count("a callback of a reply raised an exception") == 2


def test_a_server_ends_with_its_engine_and_an_interrupt(folder: Path) -> None:
    engine = load(folder / "cpu", threads=1)
    server = engine.serve(slots=1, max_new_tokens=4)
    assert server.submit("one").result().tokens
    replies = [server.submit("one") for _ in range(500)]
    engine.close()
    with pytest.raises(UserError, match="the engine is closed"):
        replies[-1].result(timeout=60)
    with pytest.raises(UserError, match=r"the server has ended: .*the engine is closed"):
        server.submit("one")
    server.close()
    with load(folder / "cpu", threads=1) as engine:
        server = engine.serve(slots=1)
        engine.close()
        with pytest.raises(UserError, match="the engine is closed"):
            server.submit("one")
        server.close()
    with load(folder / "cpu", threads=1) as engine:
        server, waits = engine.serve(slots=1, max_new_tokens=4), threading.Event()

        def interrupt(_: object) -> None:
            """While the server waits for this callback, and the main thread for the server."""
            waits.wait(60)
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.1)

        with held(server):
            server.submit("one").add_done_callback(interrupt)
            replies = [server.submit("one") for _ in range(200)]
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
        try:
            with pytest.raises(KeyboardInterrupt), server:
                waits.set()
        finally:
            signal.signal(signal.SIGINT, before)
        assert all(reply.done() for reply in replies) and replies[-1].cancelled()


def test_an_engine_that_is_closed_stays_closed(folder: Path) -> None:
    """Though calls are made at the same time, which open its other models."""
    for _ in range(5):
        engine = load(folder / "cpu", threads=1)
        with ThreadPoolExecutor(4) as pool:
            ended = [pool.submit(call_until_closed, engine) for _ in range(4)]
            time.sleep(0.05)
            engine.close()
            assert all("the engine is closed" in one.result(timeout=30) for one in ended)


def test_callbacks_of_all_batches_may_close_their_server(folder: Path) -> None:
    with load(folder / "cpu", threads=1, workers=2) as engine:
        server = engine.serve(slots=2, workers=2, max_new_tokens=30)
        both = threading.Barrier(2)

        def close(_: object) -> None:
            with suppress(threading.BrokenBarrierError):
                both.wait(5)
            server.close()

        with held(server):
            replies = [server.submit("one") for _ in range(2)]
            for reply in replies:
                reply.add_done_callback(close)
        assert replies[0].result(timeout=60).tokens or replies[1].result(timeout=60).tokens
        server.close(timeout=60)
        assert all(reply.done() for reply in replies)


def call_until_closed(engine: Engine) -> str:
    deadline = time.monotonic() + 20
    try:
        while time.monotonic() < deadline:
            engine.generate(["one"], slots=1, max_new_tokens=2)
    except UserError as error:
        return str(error)
    return "still open"


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)])
def test_a_program_may_end_while_its_server_works(folder: Path, end: str, code: int) -> None:
    lines = f"""
import sys, time, xformc
engine = xformc.load({str(folder / "cpu")!r}, threads=1)
server = engine.serve(slots=2, max_new_tokens=60)
replies = [server.submit("one two") for _ in range(500)]
time.sleep(0.1)
{end}
"""
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, check=False, timeout=120)
    assert found.returncode == code, found.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_server_of_another_process_is_refused(folder: Path) -> None:
    lines = f"""
import os, xformc
from xformc.errors import UserError
server = xformc.load({str(folder / "cpu")!r}, threads=1).serve(slots=2)
if os.fork() == 0:
    try:
        with server:
            pass
        server.submit("one")
    except UserError as error:
        server.close()
        os._exit(0 if "those of another process" in str(error) else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
server.close()
"""
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, check=False, text=True, timeout=60)
    assert found.stdout == "0\n", found.stderr


def server_text(engine: Engine) -> Reply:
    """A text of a server that was closed before it could end."""
    server = engine.serve(slots=1, tokens_at_once=1, max_new_tokens=60, temperature=0.0)
    server.submit("one")
    reply = server.submit(PROMPT)
    server.close()
    return reply


def test_what_cannot_be_served_is_refused(folder: Path, tmp_path: Path) -> None:
    with load(folder / "cpu", threads=1) as engine:
        for slots in (0, 1025, True):
            with pytest.raises(UserError, match=f"slots must be an integer from 1 to 1024, not {slots}"):
                engine.serve(slots=slots)
        with pytest.raises(UserError, match="workers must be an integer from 1 to 1024, not 0"):
            engine.serve(workers=0)
        with engine.serve() as server:
            with pytest.raises(UserError, match="max_new_tokens must be an integer"):
                server.submit("a", max_new_tokens=0)
            with pytest.raises(UserError, match=r"line 1: \d+ tokens; this engine takes at most 63"):
                server.submit("one " * 90)
        stream = engine.generate_stream(["one", "one " * 90, "two"], slots=2, max_new_tokens=2)
        assert len(next(stream).tokens) <= 2
        with pytest.raises(UserError, match="line 2: "):
            next(stream)
    with pytest.raises(UserError, match="the engine is closed"):
        engine.serve()
    older = shutil.copytree(folder / "cpu", tmp_path / "older")
    (older / "refill.onnx").unlink()
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    with load(older, threads=1) as engine, pytest.raises(UserError, match="plain has no batches that refill"):
        engine.serve()
    shutil.copy(older / "scores.onnx", older / "refill.onnx")
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    with load(older, threads=1) as engine, pytest.raises(UserError, match="not an xformc model: it lacks "):
        engine.generate(["one"], slots=1)


def test_the_command_line_has_slots(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs \n\nhello\none\n")
    command = ("generate", folder / "cpu", "-i", tmp_path / "in", "--max-new-tokens", "6", "--seed", "3")
    assert xformc(*command, "--slots", "2").out == xformc(*command).out
    assert mistake(xformc(*command, "--slots", "2", "--stream")).startswith("--slots has no effect with --stream")
    assert mistake(xformc(*command, "--slots", "0")).startswith("--slots must be an integer from 1 to 1024, not 0")


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server on the page, in a process of its own, and its address."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    command = [sys.executable, "-c", program, str(folder / "cpu"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.terminate()


@pytest.fixture
def address(served: tuple[subprocess.Popen[str], str]) -> str:
    return served[1]


def post(address: str, content: dict[str, Any]) -> dict[str, Any]:
    with urlopen(address, json.dumps(content).encode(), timeout=60) as answer:
        return json.loads(answer.read())


def test_the_http_server_of_the_page_gives_each_request_its_text(folder: Path, address: str) -> None:
    prompts = [WORDS[index % len(WORDS)] for index in range(10)]
    with load(folder / "cpu", threads=1) as engine:
        expected = engine.generate(prompts, seed=3, temperature=0.9)
    requests = [{"prompt": prompt, "seed": 3 + place, "temperature": 0.9} for place, prompt in enumerate(prompts)]
    with ThreadPoolExecutor(len(requests)) as pool:
        found = list(pool.map(lambda request: post(address, request), requests))
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    for wrong, message in (({}, "prompt"), ({"prompt": "one", "temprature": 1}, "did you mean 'temperature'")):
        with pytest.raises(HTTPError) as caught:
            post(address, wrong)
        assert caught.value.code == 400
        assert message in json.loads(caught.value.read())["error"]


def test_the_http_server_of_the_page_ends_with_the_answers_under_way(served: tuple[subprocess.Popen[str], str]) -> None:
    process, address = served
    body = json.dumps({"prompt": "one", "seed": 3})
    early = HTTPConnection(address.removeprefix("http://"), timeout=60)
    early.putrequest("POST", "/")
    early.putheader("Content-Length", str(len(body)))
    early.endheaders()
    text = post(address, json.loads(body))["text"]  # the server has the connection before this one
    process.terminate()
    early.send(body.encode())
    assert json.loads(early.getresponse().read())["text"] == text
    assert process.wait(60) == 0
