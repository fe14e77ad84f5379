"""Vocabularies that came with the weights of another library: other special tokens, or a tokenizer.json."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xformc.errors import UserError
from xformc.format.names import TOKENIZER
from xformc.format.tokens import SpecialTokens
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.vocabulary import SUFFIXES, Tokenizer, Vocabulary, tokenizer_files, vocabulary_at


@dataclass(frozen=True)
class ForeignVocabulary(Vocabulary):
    """A vocabulary that the runtime has opened: `model` has the file's bytes, `size` is the spec's."""

    opened: Any = None
    size: int = 0

    def __len__(self) -> int:
        """The number of tokens of the spec's vocabulary."""
        return self.size

    @property
    def around(self) -> tuple[Sequence[int], Sequence[int]]:
        """The tokens before and after a text that a model reads, as the file says."""
        place = -1
        whole: list[int] = self.opened.surround([place])
        return whole[: whole.index(place)], whole[whole.index(place) + 1 :]

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of each sentence, without special tokens."""
        return [self.opened.encode(sentence) for sentence in sentences]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, which has no special tokens."""
        return [self.opened.decode(list(ids)) for ids in rows]


def tokenizer_in(folders: Sequence[Path], schema: DataSchema) -> Tokenizer:
    """The tokenizer of each input of tokens: the file of its name in the first of these folders, or their only one.

    Raises: UserError if there is none, or if it does not fit the spec's vocabulary and special tokens.
    """
    files = tokenizer_files(schema.texts, shared=False)
    loaded: dict[tuple[Path, SpecialTokens], Vocabulary] = {}
    found: dict[str, Vocabulary] = {}
    for name in schema.texts:
        special, size = schema.inputs[name].special, schema.inputs[name].vocabulary
        choices = [folder / file for folder in folders for file in (files[name], TOKENIZER)]
        paths = [path.with_suffix(suffix) for path in choices for suffix in SUFFIXES]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            message = f"there is no tokenizer for the input '{name}' beside these weights"
            raise UserError(message, place=str(folders[0]), hint=f"give a run whose data was text, with {TOKENIZER}")
        if not special.ends:
            open_vocabulary(path, size, special)  # which refuses a template with an end
        same = replace(special, ends=True)
        if (path, same) not in loaded:
            loaded[path, same] = opened_vocabulary(path, size, same)
        found[name] = loaded[path, same]
    return Tokenizer(found)


def opened_vocabulary(path: Path, size: int, special: SpecialTokens) -> Vocabulary:
    """The vocabulary in a file, for an input with this size and these special tokens. Raises: UserError."""
    if special.usual and path.suffix != ".json":
        return vocabulary_at(path, size)
    opened = open_vocabulary(path, size, special)
    suffix = path.suffix if path.suffix in SUFFIXES else SUFFIXES[0]
    return ForeignVocabulary(path.read_bytes(), special, suffix, opened, size)


def is_foreign(folder: Path, schema: DataSchema) -> bool:
    """Whether the tokenizers of a run are those of an import."""
    own = all(schema.inputs[name].special.usual for name in schema.texts)
    return not own or any((folder / file).with_suffix(".json").is_file() for file in _names(schema))


def _names(schema: DataSchema) -> set[str]:
    return {TOKENIZER, *tokenizer_files(schema.texts, shared=False).values()}
