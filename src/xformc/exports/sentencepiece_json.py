"""Writes a SentencePiece model as a tokenizer.json of the library tokenizers, which gives the same ids."""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from sentencepiece import sentencepiece_model_pb2

from xformc.errors import UserError

SPACE = "▁"
_UNIGRAM, _BPE, _CHARACTERS = 1, 2, 4
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4


def tokenizer_json(path: Path, before: Sequence[int], after: Sequence[int]) -> str:
    """The content of a tokenizer.json that puts these tokens before and after a text.

    Raises: UserError for a model that the library cannot say, or without the library.
    """
    try:
        tokenizers: Any = importlib.import_module("tokenizers")
    except ModuleNotFoundError as error:
        hint = "pip install 'xformc[tokenizers]'"
        raise UserError("needs the package tokenizers, which is not installed", hint=hint) from error
    model: Any = cast(Any, sentencepiece_model_pb2).ModelProto.FromString(path.read_bytes())
    for piece in model.pieces:
        if piece.type == _CONTROL:  # the tag of a language begins with a space here, and is a token of its own there
            piece.piece = piece.piece.removeprefix(SPACE)
    lacking = _lacking(model)
    if lacking:
        raise UserError(f"{lacking}, which the library tokenizers does not have", place=str(path))
    found: Any = tokenizers.Tokenizer(_model(tokenizers.models, model))
    found.normalizer = _normalizer(tokenizers, model.normalizer_spec)
    found.decoder = _decoder(tokenizers.decoders, model)
    names = [piece.piece for piece in model.pieces if piece.type == _CONTROL]
    found.add_special_tokens([tokenizers.AddedToken(name, normalized=False, special=True) for name in names])
    if before or after:
        around = {one: str(model.pieces[one].piece) for one in (*before, *after)}
        single = [*(around[one] for one in before), "$A", *(around[one] for one in after)]
        pairs = [(name, one) for one, name in around.items()]
        found.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=pairs)
    return str(found.to_str(pretty=False))


def _lacking(model: Any) -> str | None:
    """What the library cannot say of a model."""
    spec = model.trainer_spec
    if spec.model_type not in (_UNIGRAM, _BPE, _CHARACTERS):
        return "is a model of words"
    if spec.treat_whitespace_as_suffix:
        return "has spaces that end words"
    if spec.model_type == _BPE and any(piece.type == _USER_DEFINED for piece in model.pieces):
        return "has byte pairs with symbols of one's own"
    return None


def _model(models: Any, model: Any) -> Any:
    spec = model.trainer_spec
    unknown = next((index for index, piece in enumerate(model.pieces) if piece.type == _UNKNOWN), None)
    if spec.model_type != _BPE:
        best = max((piece.score for piece in model.pieces if piece.type == _NORMAL), default=0.0)
        scores = [(piece.piece, _score(piece, best)) for piece in model.pieces]
        return models.Unigram(scores, unknown, spec.byte_fallback)
    ids = {str(piece.piece): index for index, piece in enumerate(model.pieces)}
    name = None if unknown is None else str(model.pieces[unknown].piece)
    return models.BPE(ids, list(_merges(model, ids)), unk_token=name, fuse_unk=True, byte_fallback=spec.byte_fallback)


def _score(piece: Any, best: float) -> float:
    """The piece's score. Those that always stand as a whole beat the best pieces of one character each."""
    return len(piece.piece) * best - 0.1 if piece.type == _USER_DEFINED else piece.score


def _merges(model: Any, ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    """The pairs of pieces that make another one, the best score first."""
    for piece in sorted(model.pieces, key=lambda piece: -piece.score):
        text = str(piece.piece)
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text)) if piece.type == _NORMAL]
        made = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        yield from sorted(made, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def _normalizer(tokenizers: Any, spec: Any) -> Any:
    kinds = tokenizers.normalizers
    steps: list[Any] = []
    if spec.precompiled_charsmap:
        steps.append(kinds.Precompiled(bytes(spec.precompiled_charsmap)))
    if spec.remove_extra_whitespaces:
        steps += [kinds.Replace(tokenizers.Regex("^ +| +$"), ""), kinds.Replace(tokenizers.Regex(" {2,}"), " ")]
    if spec.add_dummy_prefix:
        steps.append(kinds.Prepend(SPACE))
    return kinds.Sequence([*steps, kinds.Replace(" ", SPACE)])


def _decoder(decoders: Any, model: Any) -> Any:
    bytes_too = [decoders.ByteFallback()] if model.trainer_spec.byte_fallback else []
    start = [decoders.Strip(" ", 1, 0)] if model.normalizer_spec.add_dummy_prefix else []
    return decoders.Sequence([decoders.Replace(SPACE, " "), *bytes_too, decoders.Fuse(), *start])
