"""Appends tokens to vocabularies: symbols of their own, such as tags, for a model that is trained further."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from sentencepiece import sentencepiece_model_pb2

from xformc.errors import UserError
from xformc.format.tokens import SPECIAL
from xformc.trainer.data.vocabulary import SUFFIXES, Tokenizer, Vocabulary

USER_DEFINED = 4
"""SentencePiece's type of a piece that stands for itself wherever it is."""


def with_symbols(tokenizer: Tokenizer, symbols: Sequence[str], sizes: Mapping[str, int]) -> Tokenizer:
    """The tokenizer with those of the symbols that it lacks after its tokens; inputs that share one still do.

    sizes: the spec's vocabularies. Raises: UserError for a vocabulary that does not grow, or grows beyond the spec's.
    """
    grown = {id(one): _grown(one, symbols) for one in tokenizer.vocabularies.values()} if symbols else {}
    vocabularies = {name: grown.get(id(one), one) for name, one in tokenizer.vocabularies.items()}
    for name, one in vocabularies.items() if symbols else ():
        if len(one) > sizes[name]:
            hint = f"set the vocabulary's size to {len(one)} or more"
            found = f"the tokenizer of '{name}' has {len(one):,} tokens with train.tokenizer.symbols"
            raise UserError(f"{found}; the spec's vocabulary is {sizes[name]:,}", hint=hint)
    return replace(tokenizer, vocabularies=vocabularies)


def _grown(vocabulary: Vocabulary, symbols: Sequence[str]) -> Vocabulary:
    if vocabulary.suffix != SUFFIXES[0] or vocabulary.special != SPECIAL:
        hint = "add the tokens to the vocabulary with the library that made it, and import it again"
        message = "train.tokenizer.symbols: only SentencePiece models with xformc's own special tokens grow"
        raise UserError(message, hint=hint)
    model: Any = cast(Any, sentencepiece_model_pb2).ModelProto()
    model.ParseFromString(vocabulary.model)
    known = {piece.piece for piece in model.pieces}
    for symbol in dict.fromkeys(symbols):
        if symbol not in known:
            model.pieces.add(piece=symbol, score=0.0, type=USER_DEFINED)
    model.trainer_spec.vocab_size = len(model.pieces)
    return replace(vocabulary, model=model.SerializeToString())
