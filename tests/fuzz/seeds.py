"""Writes the corpora of the C++ fuzzers: a few hundred bytes a file, from which they start.

python -m fuzz.seeds FOLDER
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from conformance.vocabularies import byte_pairs, codes
from native.engines import write_engines
from native.hostile_files import HOSTILE_SOUNDS, HOSTILE_TOKENIZERS, USER_DEFINED, charsmap, tokenizer, unit
from sounds import CODINGS, tone, wav

_LARGEST = 4096


def write_corpora(folder: Path) -> None:
    """Write the folders `manifest`, `tokenizer`, `wav` and `calls`."""
    with tempfile.TemporaryDirectory() as scratch:
        for engine in write_engines(Path(scratch) / "engines").iterdir():
            fields = json.loads((engine / "engine.json").read_text())
            _write(folder / "manifest" / engine.name, json.dumps(fields).encode())
    rules = charsmap({0: unit(0, 0), ord("o"): unit(ord("o"), 0x10, value=True), 0x7F: 1 << 31})
    models = {"bpe": tokenizer(), "unigram": tokenizer(model=1), "word": tokenizer(model=3), "char": tokenizer(model=4)}
    models |= {"rules": tokenizer(charsmap=rules), "symbols": tokenizer(("no", "noo"), USER_DEFINED)}
    for name, model in {**models, **HOSTILE_TOKENIZERS}.items():
        if len(model) <= _LARGEST:
            _write(folder / "tokenizer" / name, model)
    for name, content in {"codes": codes(), "few_bytes": few_bytes()}.items():
        _write(folder / "tokenizer" / name, json.dumps(content).encode())
    sounds = {f"{code}_{bits}": wav(tone(20), code=code, bits=bits) for code, bits in CODINGS}
    for name, content in {**sounds, "extensible": wav(tone(20), extensible=True), **HOSTILE_SOUNDS}.items():
        if len(content) <= _LARGEST:
            _write(folder / "wav" / name, content)
    for kind in range(7):
        _write(folder / "calls" / f"kind_{kind}", bytes([kind, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0]) + b"one two" + bytes(9))
    arrays = bytes([4, 0, 0, 5, 2, 2, 3, *[5] * 6, 0, 7, 3, 2, 3, 3, *[1] * 18, 1, 1, 1, 2, *[3] * 2, 2, 7])
    _write(folder / "calls" / "arrays", arrays + bytes([2, 2, 1, *[1] * 2, 3, 1, 3, 2, 3, 3, *[1] * 18, 4, 9]))


def few_bytes() -> dict[str, Any]:
    """The tokenizer of pieces of bytes with few of them."""
    content: dict[str, Any] = byte_pairs()
    model = content["model"]
    kept = {piece: number for piece, number in model["vocab"].items() if number < 40}
    content["model"] = {**model, "vocab": kept, "merges": [["\u00e6", "\u0139"]]}
    kept["\u00e6\u0139"] = len(kept)
    content["added_tokens"] = [*content["added_tokens"][:4], {**content["added_tokens"][4], "id": len(kept)}]
    return content


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    write_corpora(Path(sys.argv[1]))
