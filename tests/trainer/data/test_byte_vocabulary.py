"""A vocabulary of bytes keeps every text as it is, in training and in both runtimes."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiny_engine import DEFAULTS, copy_model, make_engine, text_input, write_manifest, written

from tests.runtime.kernel_session import kernel_library
from xformc.errors import UserError
from xformc.format.tokens import SPECIAL
from xformc.runtime import load
from xformc.runtime.checks.agreement import ODD_TEXTS
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.data.vocabulary import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer, train_vocabulary

CODE = "def f(x):\r\n\tif x:  # ▁ \ufb01\u2460\n\n        return 'é' + \"e\u0301\"\n\x00\u2028\u3000 "
FIRST = 4
"""The id of the byte 0."""

BYTES = train_vocabulary([], 260, kind="byte", of="text")


@given(st.text())
@example(CODE)
def test_ids_are_bytes_and_the_text_comes_back(text: str) -> None:
    [ids] = BYTES.encode([text])
    assert ids == [FIRST + byte for byte in text.encode()]
    assert BYTES.decode([ids]) == [text]


def test_training_writes_a_file_that_is_the_same_for_all_texts(tmp_path: Path) -> None:
    texts = {"source": ["one two"], "target": ["\u65e5\u672c"]}
    trained = train_tokenizer(texts, {"source": 260, "target": 300}, kind="byte", shared=False)
    assert trained.vocabularies["source"].model == trained.vocabularies["target"].model == BYTES.model
    save_tokenizer(Tokenizer({"source": BYTES}), tmp_path)
    sizes = {"source": 260}
    assert len(load_tokenizer(tmp_path, sizes, kind="byte", shared=True).vocabularies["source"]) == 260


def test_symbols_follow_the_bytes() -> None:
    marked = train_vocabulary([], 262, kind="byte", of="text", symbols=("<de>", "<fr>"))
    assert marked.encode(["a<fr>"]) == [[FIRST + ord("a"), 261]]
    assert marked.decode([[260, FIRST + ord("a")]]) == ["<de>a"]


@pytest.mark.parametrize(
    ("size", "symbols", "message"),
    [
        (259, (), r"a vocabulary of bytes has 260 tokens \(4 special tokens, 256 bytes\); the spec's has 259"),
        (260, ("<de>",), r"261 tokens \(4 special tokens, 256 bytes and 1 symbols\); the spec's has 260"),
    ],
)
def test_a_vocabulary_without_room_for_all_bytes_is_refused(size: int, symbols: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        train_vocabulary([], size, kind="byte", of="text", symbols=symbols)
    assert caught.value.hint == f"set vocabulary to {260 + len(symbols)}"


def test_both_runtimes_keep_texts_and_half_characters(tmp_path: Path) -> None:
    kernel_library()
    folder = make_engine(tmp_path / "engine", copy_model())
    (folder / "tokenizer.model").write_bytes(BYTES.model)
    manifest: dict[str, object] = {
        "format": 1, "xformc": "0.1.0", "name": "bytes", "task": "translation", "target": "portable",
        "precision": "float32", "inputs": {"source": text_input(260), "target": text_input(260)},
        "results": written("target", 260), "defaults": DEFAULTS, "parameters": 0, "weights": "trained",
    }  # fmt: skip
    write_manifest(folder, manifest)
    ours, other = load(folder, threads=1), CppEngine(folder, threads=1)
    texts = [CODE, *(text for text in ODD_TEXTS if text)]
    assert [one.text for [one] in ours.translate(texts)] == texts
    assert other.translate(texts) == ours.translate(texts)
    half = [FIRST + byte for byte in "\u65e5".encode()[:2]]
    assert ours.tokenizer is not None
    assert other.decode("target", half) == ours.tokenizer.decode("target", half) == "\ufffd\ufffd"
    vocabulary = open_vocabulary(folder / "tokenizer.model", 260, SPECIAL)
    assert vocabulary.spelling()[FIRST:] == [bytes([byte]) for byte in range(256)]
    other.close()
