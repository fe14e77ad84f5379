"""Reads Eole's vocab.json: the tokens of both sides by id, and the special ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.imports.json_file import read_json
from xformc.imports.origins.subwords import tokenizer_beside
from xformc.imports.tokenizers import JSON, ForeignTokenizer, read_file

VOCABULARY = "vocab.json"
SIDES = {"source": "src", "target": "tgt"}
USUAL = {"pad": "<blank>", "unknown": "<unk>", "begin": "<s>", "end": "</s>"}
NAMES = {"pad": "pad_token", "unknown": "unk_token", "end": "eos_token"}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of each side by id, and the special tokens: the ids by their names here, which are the same on both
    sides. A language model has one side, and may lack special tokens. ends: all tokens that end a text."""

    sides: Mapping[str, Sequence[str]]
    special: Mapping[str, int]
    ends: Sequence[int]

    def values(self) -> dict[str, Scalar]:
        """The ids and the sizes by the names of the table."""
        found: dict[str, Scalar] = {f"{side}_vocabulary": len(names) for side, names in self.sides.items()}
        found |= {key: self.special.get(key, "none") for key in ("pad", "unknown", "begin")}
        several = {f"end.{place}": one for place, one in enumerate(self.ends)}
        return {**found, **(several if len(several) > 1 else {"end": self.ends[0]})}

    def tokenizer(self, folder: Path) -> ForeignTokenizer | None:
        """The tokenizer in a folder; None for a language model without an unknown token."""
        if (folder / JSON).is_file():
            return ForeignTokenizer({JSON: read_file(folder / JSON)}, self.special.get("unknown"))
        if "unknown" not in self.special:
            return None
        named = {
            self.special[key]: name
            for key, name in (("unknown", "<unk>"), ("end", "</s>"), ("pad", "<pad>"))
            if key in self.special
        }
        return tokenizer_beside(folder, self.sides, named)


def read_vocabulary(folder: Path, more_ends: Sequence[str], *, several: bool) -> Vocabulary:
    """The vocabulary of a folder; with `several`, of a source and a target.

    Raises: UserError for a file that is damaged, or special tokens that are missing or differ between the sides.
    """
    path = folder / VOCABULARY
    if not path.is_file():
        raise UserError(f"has no {VOCABULARY}", place=str(folder))
    content: object = read_json(path, TOKENIZER_BYTES, "a vocabulary", lambda found: found)
    stored = _mapping(content)
    sides = {side: _names(stored.get(key)) for side, key in SIDES.items()}
    if not all(sides.values()):
        raise UserError("must have lists of tokens, each once, under src and tgt", place=str(path))
    if not several:
        if sides["source"] != sides["target"]:
            raise UserError("src and tgt of a language model must have the same tokens", place=str(path))
        sides = {"target": sides["target"]}
    special, wrong = _special(stored, sides, all_needed=several)
    ends = [sides["target"].index(name) for name in more_ends if name in sides["target"]]
    if wrong:
        need = "must have one id, the same in both vocabularies" if several else "must be a token"
        raise UserError(f"{', '.join(wrong)} {need}", place=str(path))
    return Vocabulary(sides, special, list(dict.fromkeys([special["end"], *ends])))


def _mapping(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, dict) else {}


def _names(value: object) -> list[str]:
    items = cast(list[object], value) if isinstance(value, list) else []
    names = [item for item in items if isinstance(item, str)]
    return names if len(names) == len(items) == len(set(names)) else []


def _special(
    stored: Mapping[str, object], sides: Mapping[str, Sequence[str]], *, all_needed: bool
) -> tuple[dict[str, int], list[str]]:
    """The ids of the special tokens, and the names of those that have none or several and need one."""
    names = _mapping(stored.get("specials"))
    tokens = {key: str(names.get(name, USUAL[key])) for key, name in NAMES.items()}
    tokens["begin"] = str(stored.get("decoder_start_token", USUAL["begin"]))
    places = {side: {name: place for place, name in enumerate(listed)} for side, listed in sides.items()}
    ids = {key: {one.get(token, -1) for one in places.values()} for key, token in tokens.items()}
    found = {key: one.pop() for key, one in ids.items() if len(one) == 1 and -1 not in one}
    return found, [token[:60] for key, token in tokens.items() if key not in found and (all_needed or key == "end")]
