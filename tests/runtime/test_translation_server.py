"""Batches of translations that refill: sentences join and leave, and each is what it is alone."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.certificate import Certificate
from xformc.runtime import Engine, TranslationReply, load

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
decode: {max_length: {factor: 1, offset: 6}}
"""
SHAPES: list[dict[str, Any]] = [{"tokens_at_once": 1}, {"tokens_at_once": 3, "workers": 2}, {"workers": 3}, {}]
WORDS = ["one", "two", "dogs", "play", "a man", "rides"]
SETTINGS: list[dict[str, Any]] = [
    {"n_best": 4},
    {"beam_size": 1},
    {"beam_size": 5, "n_best": 5, "stop_rule": "best", "length_penalty": 0.0},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "suppress_tokens": [5], "stop_rule": "shrink"},
]
OWN: list[dict[str, Any]] = [
    {},
    {"length_penalty": 1.0, "max_length_offset": 2},
    {"min_length": 5, "presence_penalty": 0.5},
]


def build_with(setting: Callable[[int], str], path: Path) -> Certificate:
    """Build a native engine of SPEC with random weights and one more setting of `decode`, which may depend on the size
    of the vocabulary, into `path`/engine; skips without kernels."""
    kernel_library()
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    spec = SPEC.replace("PIECES", str(size)).replace("decode: {", f"decode: {{{setting(size)}, ")
    (path / "spec.yaml").write_text(spec)
    tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), path / "tokenizer.model")
    return build_engine(load_spec(path / "spec.yaml"), None, tokenizers, "native", path / "engine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a native engine in int8, with random weights; skips without kernels."""
    kernel_library()
    path = tmp_path_factory.mktemp("server")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    (path / "plain.yaml").write_text(SPEC.replace("PIECES", str(size)))
    tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), path / "tokenizer.model")
    certificate = build_engine(
        load_spec(path / "plain.yaml"), None, tokenizers, "native", path / "engine", rounding=Rounding("int8")
    )
    assert "refill" in [stage.name for stage in certificate.stages]
    return path


def attack(engine: Engine, schedules: int) -> int:
    """Check texts of random schedules against each alone; return how many were cancelled."""
    random, cancelled = Random(0), 0
    for schedule in range(schedules):
        options, given = SETTINGS[schedule % 4], list[tuple[str, str, dict[str, Any], TranslationReply]]()
        with engine.serve(slots=(1, 3, 8)[schedule % 3], **random.choice(SHAPES), **options) as server:
            for _ in range(10):
                text, own = " ".join(random.choices(WORDS, k=random.choice([0, 1, 3, 9]))), random.choice(OWN)
                prefix = random.choice(["", "", "two"])
                given.append((text, prefix, own, server.submit(text, prefix=prefix, **own)))
                time.sleep(random.choice([0, 0, 0.002]))
            cancelled += given[random.randrange(10)][3].cancel()
        for text, prefix, own, reply in given:
            if not reply.cancelled():
                (alone,) = engine.translate([text], prefixes=[prefix], each=cast(Any, [own]), **options)
                assert reply.result(timeout=0) == alone
    return cancelled


@pytest.mark.processor
def test_a_translation_is_what_it_is_alone_whoever_shares_its_batch(folder: Path) -> None:
    with load(folder / "engine", threads=1) as engine:
        assert attack(engine, 8) > 1
        texts = ["two dogs play in the snow", "", " ".join(["one"] * 40), "two"] * 2
        together = engine.translate(texts, prefixes="a", n_best=2)
        assert engine.translate(texts, prefixes="a", n_best=2, slots=3) == together
        stream = engine.translate_stream(iter(texts), prefixes="a", n_best=2, slots=2, window=1)
        assert [*stream] == together


def test_translations_are_cancelled_and_refused(folder: Path) -> None:
    with load(folder / "engine", threads=1) as engine:
        with engine.serve(slots=1, tokens_at_once=1, beam_size=2, max_length_offset=400) as server:
            first, second = server.submit("one"), server.submit("two", max_length_offset=0)
            assert first.cancel() and second.result()[0].tokens
            with pytest.raises(CancelledError):
                first.result()
            with pytest.raises(UserError, match="beam_size is one number for all texts\nhint: give it once"):
                server.submit("one", beam_size=3)
            with pytest.raises(UserError, match="min_length must be an integer"):
                server.submit("one", min_length=-1)
        with pytest.raises(UserError, match="the server is closed"):
            server.submit("one")
        every: list[dict[str, Any]] = [{"token_scores": True}, {"alignment": True}, {"samples": 2}]
        for idle in every:
            with pytest.raises(UserError, match=f"{next(iter(idle))} has no effect with slots"):
                engine.translate(["a"], slots=2, **idle)
        with pytest.raises(UserError, match="slots must be an integer from 1 to 1024, not 0"):
            engine.translate(["a"], slots=0)


def test_a_callback_may_close_the_server(folder: Path) -> None:
    with load(folder / "engine", threads=1) as engine:
        server = engine.serve(slots=2)
        ended = threading.Event()

        def close(_: object) -> None:
            server.close()
            ended.set()

        reply = server.submit("one two")
        reply.add_done_callback(close)
        assert ended.wait(60)
        server.close()


def test_the_command_line_translates_in_slots(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs \n\nhello\none\n")
    command = ("translate", folder / "engine", "-i", tmp_path / "in", "--n-best", "2")
    assert xformc(*command, "--slots", "2").out == xformc(*command).out
    assert xformc(*command, "--slots", "2", "--workers", "2").out == xformc(*command).out
    tiny_engine.make_engine(tmp_path / "copy")
    assert "has no batches that refill" in mistake(
        xformc("translate", tmp_path / "copy", "-i", tmp_path / "in", "--slots", "2")
    )
