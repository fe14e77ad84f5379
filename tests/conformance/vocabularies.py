"""The tokenizer.json files of the engines of the conformance cases, written out so that they need no package."""

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
FIRST = "日本語é😀 \nжв漢字λ🙂हिş".encode()
"""The bytes with the lowest ids, which the models write most."""

MERGES = ("日", " t", "he", " the", "12", "  ", "é", "語")
"""What neighbours merge to, each of the ones before it and of bytes."""


def byte_pairs() -> dict[str, object]:
    """Pieces of bytes as Qwen cuts texts, with normalization and added tokens."""
    shown = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
    shown |= {byte: chr(256 + place) for place, byte in enumerate(byte for byte in range(256) if byte not in shown)}
    order = dict.fromkeys([*FIRST, *range(256)])
    pieces = [*SPECIAL, *(shown[byte] for byte in order)]
    merges: list[list[str]] = []
    for text in MERGES:
        whole = "".join(shown[byte] for byte in text.encode())
        while whole not in pieces:
            left = max((piece for piece in pieces if whole.startswith(piece)), key=len)
            right = max((piece for piece in pieces if whole[len(left) :].startswith(piece)), key=len)
            merges.append([left, right])
            pieces.append(left + right)
    ids = {piece: place for place, piece in enumerate(pieces)}
    return {
        "version": "1.0",
        "added_tokens": [
            *(_added(ids[one], one, special=True) for one in SPECIAL),
            _added(len(ids), "<tool>", special=False),
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "unk_token": None, "fuse_unk": False, "vocab": ids, "merges": merges},
    }


def codes() -> dict[str, object]:
    """Pieces of words as subword-nmt's codes cut them: those that merges pass through have ids beyond 40."""
    letters = "abcdefghilnorstuwé日"
    pieces = [*[*SPECIAL, *(one + "</w>" for one in letters), *letters][:37], "the</w>", "one</w>", "tw"]
    merges = [["h", "e</w>"], ["t", "he</w>"], ["n", "e</w>"], ["o", "ne</w>"], ["t", "w"]]
    pieces += [left + right for left, right in merges if left + right not in pieces]
    pieces += [one for one in letters if one not in pieces]
    return {
        "version": "1.0",
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "end_of_word_suffix": "</w>",
            "fuse_unk": False,
            "vocab": {piece: place for place, piece in enumerate(pieces)},
            "merges": merges,
        },
    }


def _added(number: int, content: str, *, special: bool) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": number, "content": content, **flags}
