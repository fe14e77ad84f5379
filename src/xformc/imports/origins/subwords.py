"""Makes tokenizers of dictionaries: words, characters, codes of byte pairs, or SentencePiece's pieces."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.imports.origins.dictionaries import SPECIAL
from xformc.imports.tokenizers import ForeignTokenizer, renumbered

CODES = ("bpe.codes", "bpe.code", "bpecodes", "codes", "code")
MODELS = ("sentencepiece.bpe.model", "spm.model", "sentencepiece.model", "spm.bpe.model")
BESIDE = ("tokenizer.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model")
"""The SentencePiece models beside a model with vocabularies of its own, for both sides; the first is taken."""

KINDS = ("", "characters", "subword_nmt", "fastbpe", "sentencepiece")
"""What fairseq's option `bpe` may be; the first for none."""

TAG = re.compile(r"__[a-z]+__|[a-z]{2}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3}")
"""The tags of languages of M2M-100, mBART-50 and NLLB."""

SEPARATOR, WORD_END, SPACE = "@@", "</w>", "▁"

Ids = Mapping[str, int]
Merges = list[tuple[str, str]]


def fairseq_tokenizer(
    folders: Sequence[Path], dictionaries: Mapping[str, Ids], kind: str, place: str
) -> ForeignTokenizer:
    """The tokenizer of each side, by the files that are there: codes, or a SentencePiece model, else words.

    `kind` is fairseq's option `bpe`. Raises: UserError for codes that are missing, damaged or of another kind.
    """
    codes, model = (_first(folders, names) for names in (CODES, MODELS))
    if kind not in KINDS:
        raise UserError(f"its texts are cut by {kind[:40]}; imported are {', '.join(KINDS[1:])}", place=place)
    codes = None if kind == "sentencepiece" else codes
    unknown = SPECIAL.index("<unk>")
    if kind == "characters":
        return json_files({side: _characters(ids) for side, ids in dictionaries.items()}, unknown)
    if codes is not None:
        merges = read_codes(codes)
        return json_files({side: byte_pairs(ids, merges) for side, ids in dictionaries.items()}, unknown)
    if model is not None:
        models = {side: renumbered(model, ids) for side, ids in dictionaries.items()}
        lost = sum(count for _, count in models.values())
        return ForeignTokenizer({f"{side}.model": content for side, (content, _) in models.items()}, unknown, lost)
    if kind or any(token.endswith(SEPARATOR) for ids in dictionaries.values() for token in ids):
        wanted = f"one of {', '.join((*CODES, *MODELS))}"
        raise UserError(
            f"its texts are cut by {kind or 'byte pairs'}: put the codes beside the dictionaries, as {wanted}",
            place=place,
        )
    return json_files({side: words(ids) for side, ids in dictionaries.items()}, unknown)


def tokenizer_beside(folder: Path, names: Mapping[str, Sequence[str]], special: Mapping[int, str]) -> ForeignTokenizer:
    """The tokenizer of each side, whose tokens are `names`: by the SentencePiece models or codes in the folder, else
    words between spaces. `special` has the ids of `<unk>`, `</s>` and `<pad>`, whatever their names.
    """
    ids = {side: _named(tokens, special) for side, tokens in names.items()}
    unknown = next(number for number, name in special.items() if name == "<unk>")
    choices = {side: [folder / one for one in (f"{side}.spm", f"{side}.model", *BESIDE)] for side in names}
    files = {side: path for side in names for path in reversed(choices[side]) if path.is_file()}
    if len(files) == len(names):
        tags = {name for side in ids.values() for name in side if TAG.fullmatch(name)}
        models = {side: renumbered(path, ids[side], tags) for side, path in files.items()}
        lost = sum(count for _, count in models.values())
        contents = {f"{side}.model": content for side, (content, _) in models.items()}
        if len(set(contents.values())) == 1:
            contents = {"tokenizer.model": next(iter(contents.values()))}
        return ForeignTokenizer(contents, unknown, lost)
    codes = _first([folder], CODES)
    if codes is None:
        return json_files({side: words(side_ids) for side, side_ids in ids.items()}, unknown)
    merges = read_codes(codes)
    return json_files({side: byte_pairs(side_ids, merges) for side, side_ids in ids.items()}, unknown)


def _named(names: Sequence[str], special: Mapping[int, str]) -> dict[str, int]:
    """The ids of the tokens; special ones have the names of SentencePiece."""
    rest = {name: number for number, name in enumerate(names) if number not in special and name not in special.values()}
    return {**rest, **{name: number for number, name in special.items()}}


def read_codes(path: Path) -> Merges:
    """The pairs that subword-nmt or fastBPE merge, in their order; the last piece of a word ends with `</w>`.

    Raises: UserError for another version or a line that is no pair.
    """
    if path.stat().st_size > TOKENIZER_BYTES:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error.reason}", place=str(path)) from None
    versioned = lines[0].startswith("#version:")
    if versioned and lines[0].split()[-1] != "0.2":
        raise UserError(f"codes of {lines[0][1:40]}; imported are those of version 0.2", place=str(path))
    columns, start = (2, 1) if versioned else (3, 0)
    rows = [line.rstrip("\r ").split(" ") for line in lines[start:]]
    for number, row in enumerate(rows, start + 1):
        if len(row) != columns or not all(row):
            wanted = "a pair, as subword-nmt writes it" if versioned else "a pair and its count, as fastBPE writes it"
            raise UserError(f"must have {wanted}, found {' '.join(row)[:60]!r}", place=f"{path}:{number}")
    return list(dict.fromkeys((row[0], row[1]) for row in rows))


def byte_pairs(ids: Ids, merges: Merges) -> dict[str, object]:
    """The tokenizer.json that cuts words as these merges do. Pieces that only merges pass through, and that the
    dictionary lacks, have ids beyond it, which are read as the unknown token.
    """
    pieces = {_piece(token): number for token, number in ids.items()}
    for left, right in merges:
        for piece in (left, right, left + right):
            pieces.setdefault(piece, max(len(pieces), max(ids.values()) + 1))
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "end_of_word_suffix": WORD_END,
        "fuse_unk": False,
        "vocab": pieces,
        "merges": [list(pair) for pair in merges],
    }
    return {
        "version": "1.0",
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        "model": model,
    }


def _piece(token: str) -> str:
    """The piece of a word that a token stands for: `ab@@` goes on, `ab` ends the word."""
    if token in SPECIAL:
        return token
    return token.removesuffix(SEPARATOR) if token.endswith(SEPARATOR) and token != SEPARATOR else token + WORD_END


def words(ids: Ids) -> dict[str, object]:
    """The tokenizer.json whose tokens are what stands between spaces."""
    return {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": _whole(ids)}


def _characters(ids: Ids) -> dict[str, object]:
    """The tokenizer.json whose tokens are characters, of which ▁ is a space."""
    return {
        "version": "1.0",
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}],
        },
        "model": _whole(ids),
    }


def _whole(ids: Ids) -> dict[str, object]:
    return {"type": "WordLevel", "vocab": dict(ids), "unk_token": "<unk>"}


def json_files(tokenizers: Mapping[str, Mapping[str, object]], unknown: int) -> ForeignTokenizer:
    """The files of the sides; one if they are the same."""
    files = {f"{side}.json": json.dumps(content, ensure_ascii=False).encode() for side, content in tokenizers.items()}
    if len(set(files.values())) == 1:
        files = {"tokenizer.json": next(iter(files.values()))}
    return ForeignTokenizer(files, unknown)


def _first(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)
