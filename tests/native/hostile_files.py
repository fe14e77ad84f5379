"""Tokenizers, manifests and sounds that are meant to end the process that reads them: for tests and the fuzzers."""

import struct

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from sounds import part, riff, wav

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
_VALUE = 1 << 31
_HAS_VALUE = 1 << 8


def tokenizer(
    symbols: tuple[str, ...] = (), kind: int = USER_DEFINED, charsmap: bytes = b"", score: float = 0, model: int = 2
) -> bytes:
    """A small SentencePiece model with these pieces more, all of one kind; `model` 2 is BPE, 1 unigram."""
    proto = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    special = (("<pad>", CONTROL), ("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
    for text, each in (*special, ("\u2581", NORMAL), ("o", NORMAL), ("n", NORMAL), ("on", NORMAL)):
        proto.pieces.add(piece=text, type=each, score=0)
    for text in symbols:
        proto.pieces.add(piece=text, type=kind, score=score)
    proto.trainer_spec.model_type = model
    for name, number in (("pad", 0), ("unk", 1), ("bos", 2), ("eos", 3)):
        setattr(proto.trainer_spec, f"{name}_id", number)
    proto.normalizer_spec.precompiled_charsmap = charsmap
    return proto.SerializeToString()


def charsmap(units: dict[int, int], replacements: bytes = b"x\0") -> bytes:
    """Rules of normalization: the units of a double array of 256, and the texts that its values point to."""
    trie = struct.pack("<256I", *(units.get(index, _VALUE) for index in range(256)))
    return struct.pack("<I", len(trie)) + trie + replacements


def unit(label: int, offset: int, *, value: bool = False) -> int:
    return label | offset << 10 | (_HAS_VALUE if value else 0)


HOSTILE_TOKENIZERS = {
    # "o" leads to a unit 2^21 units away, outside of the array.
    "charsmap_outside": tokenizer(charsmap=charsmap({0: unit(0, 0), ord("o"): unit(ord("o"), (1 << 21) - 1)})),
    # The root leads outside of the array, and looks like a value, which leads nowhere.
    "charsmap_root": tokenizer(charsmap=charsmap({0: _VALUE | unit(0, (1 << 20) - 1)})),
    # "o", "oo", "ooo" ... are all keys, by a unit that is its own child: SentencePiece has memory for 32.
    "charsmap_circle": tokenizer(
        charsmap=charsmap({0: unit(0, 0), ord("o"): unit(ord("o"), ord("o"), value=True), 0x6E: _VALUE})
    ),
    "charsmap_short": tokenizer(charsmap=b"\0"),
    "charsmap_unended": tokenizer(charsmap=charsmap({0: unit(0, 0)}, b"x")),
    "charsmap_long": tokenizer(charsmap=charsmap({0: unit(0, 0)}, b"x" * 300 + b"\0")),
    # 100 symbols of which each begins the next: SentencePiece has memory for 64.
    "symbols_nested": tokenizer(tuple("o" * size for size in range(2, 102))),
    "piece_long": tokenizer(("o" * 1001,), UNUSED),
    "score_not_finite": tokenizer(("no",), NORMAL, score=float("nan")),
    "piece_with_nul": tokenizer(("no\0n",), NORMAL, model=1),
    "empty": b"",
}

HOSTILE_MANIFESTS = {
    "deep": b'{"format": 1, "a": ' + b"[" * 400_000 + b"]" * 400_000 + b"}",
    "deep_objects": b'{"a":' * 150_000 + b"0" + b"}" * 150_000,
    "many_keys": b"{" + b",".join(b'"%d": 0' % index for index in range(80_000)) + b"}",
}

_SAMPLES = np.array([0.5, -0.5, 0.25], np.float32)
HOSTILE_SOUNDS = {
    "empty": b"",
    "header": b"RIFF\xff\xff\xff\xffWAVE",
    "cut": wav(_SAMPLES)[:-1],
    "size_beyond": wav(_SAMPLES)[:-10] + b"\xff" * 10,
    "size_wraps": riff(part(b"fmt ", b"")[:4] + b"\xf8\xff\xff\xff"),
    "no_format": riff(part(b"data", b"abcd")),
    "no_channels": wav(_SAMPLES).replace(b"\1\0\1\0", b"\1\0\0\0"),
    "channels": wav(_SAMPLES).replace(b"\1\0\1\0", b"\1\0\xff\xff"),
    "block_of_nothing": wav(_SAMPLES).replace(b"\2\0\x10\0note", b"\0\0\0\0note"),
    "bits": wav(_SAMPLES).replace(b"\2\0\x10\0", b"\2\0\xff\xff"),
    "parts": riff(*[part(b"junk", b"")] * 10_000),
    "formats": riff(part(b"fmt ", b"\1\0"), part(b"data", b"abcd")),
    "not_finite": wav(_SAMPLES * np.inf, code=3, bits=32),
}
"""Sounds that are damaged or lie."""
