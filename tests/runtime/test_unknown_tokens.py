"""Unknown tokens have no text: one of the spaces around them is left, and nothing else of a text changes."""

import itertools
import random

import pytest
import sentencepiece

from tests import tiny_engine
from xformc.format.tokens import SPECIAL
from xformc.runtime.text.sentencepiece_vocabulary import SentencePieceVocabulary
from xformc.runtime.text.tokenizer import Tokenizer

UNKNOWN, NAME = 1, "text"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One with bytes, so that texts may have tabs and line breaks."""
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
    with path.open("wb") as handle:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(tiny_engine.SENTENCES * 4), model_writer=handle, model_type="bpe", vocab_size=340,
            byte_fallback=True, pad_id=0, unk_id=1, bos_id=2, eos_id=3, hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
    size = int(sentencepiece.SentencePieceProcessor(model_file=str(path)).GetPieceSize())
    return Tokenizer({NAME: SentencePieceVocabulary(path, size, SPECIAL)})


def ids_of(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    names = {piece: one for one, piece in enumerate(tokenizer.pieces(NAME, range(340)))}
    return [UNKNOWN if piece == "?" else names[piece] for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("▁", "o", "▁", "?", "▁", "n"), "o n"),
        (("▁", "o", "?", "n"), "on"),
        (("▁", "o", "▁", "?"), "o"),
        (("▁", "o", "▁", "?", "n"), "o n"),
        (("?", "▁", "o"), "o"),
        (("▁", "o", "▁", "▁", "▁", "n", "?"), "o   n"),
        (("▁", "o", "<0x09>", "?", "<0x0A>", "n"), "o\t\nn"),
        (("▁", "o", "▁", "?", "?", "▁", "?", "▁", "n"), "o n"),
    ],
)
def test_they_leave_one_space(tokenizer: Tokenizer, pieces: tuple[str, ...], text: str) -> None:
    assert tokenizer.decode(NAME, ids_of(tokenizer, *pieces)) == text


def test_a_text_that_grows_keeps_what_it_had(tokenizer: Tokenizer) -> None:
    drawn = random.Random(0)
    choice = ids_of(tokenizer, "?", "▁", "o", "n", "<0x09>", "<0x0A>")
    for _ in range(300):
        ids = drawn.choices(choice, k=12)
        texts = [tokenizer.decode(NAME, ids[:count]) for count in range(13)]
        assert all(after.startswith(before.rstrip(" ")) for before, after in itertools.pairwise(texts)), ids
