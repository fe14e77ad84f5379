"""The vocabulary of bytes, as a SentencePiece model: it is the same for every text, and changes none."""

from collections.abc import Sequence
from typing import Any, cast

from sentencepiece import sentencepiece_model_pb2

from xformc.errors import UserError
from xformc.format.tokens import BEGIN, END, PAD, UNKNOWN

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_CHARACTERS = 4


def byte_model(size: int, symbols: Sequence[str] = ()) -> bytes:
    """A model whose tokens are the four special ones, the bytes of UTF-8 and these symbols.

    It has no other pieces, so that SentencePiece takes each character for its bytes. It neither normalizes texts nor
    changes their spaces.

    Raises: UserError if a vocabulary of `size` has too few tokens.
    """
    model: Any = cast(Any, sentencepiece_model_pb2).ModelProto()
    special = {PAD: "<pad>", UNKNOWN: "<unk>", BEGIN: "<s>", END: "</s>"}
    for number, piece in sorted(special.items()):
        model.pieces.add(piece=piece, score=0.0, type=_UNKNOWN if number == UNKNOWN else _CONTROL)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", score=0.0, type=_BYTE)
    for symbol in symbols:
        model.pieces.add(piece=symbol, score=0.0, type=_USER_DEFINED)
    count = len(model.pieces)
    if size < count:
        known = f"4 special tokens, 256 bytes and {len(symbols)} symbols" if symbols else "4 special tokens, 256 bytes"
        raise UserError(
            f"a vocabulary of bytes has {count} tokens ({known}); the spec's has {size}",
            hint=f"set vocabulary to {count}",
        )
    trained, normal = model.trainer_spec, model.normalizer_spec
    trained.model_type, trained.vocab_size, trained.byte_fallback = _CHARACTERS, count, True
    trained.pad_id, trained.unk_id, trained.bos_id, trained.eos_id = PAD, UNKNOWN, BEGIN, END
    normal.name, normal.add_dummy_prefix = "identity", False
    normal.remove_extra_whitespaces = normal.escape_whitespaces = False
    return cast(bytes, model.SerializeToString())
