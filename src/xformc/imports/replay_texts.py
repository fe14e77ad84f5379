"""Cuts texts as transformers does with an origin's tokenizer, and as the import does, and compares the tokens."""

import importlib
import io
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from xformc.runtime.text.tokenizer import Vocabulary

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    'He didn\'t say "no" (yet), did he? It costs $1,299.50 \u2013 or 12%!',
    "  two  spaces before, between and after  ",
    "Größe, naïve café, Ångström, İstanbul, Œuvre, ﬁne e\u0301te\u0301",
    "UPPER lower MiXeD snake_case camelCase https://example.org/a?b=c#d me@example.org",
    "3.14159 1234567890 2026-11-28 10:30 ½ ² ٣ 四",
    "Что это? Ελληνικά, עברית, العربية, हिन्दी, ไทย",
    "日本語の文章です。中文没有空格。 한국어 문장",
    "🙂 👩‍👩‍👧 🇩🇪 — “quotes” … «guillemets» • ™",
    "one\ttab, a\u00a0hard space, a\u200bzero width, a soft\u00adhyphen",
    "first line\nsecond line\n\n    def f(x): return x[0] != 'a'\n",
    "a",
)
"""Texts of many scripts, cases and kinds of spaces."""

NAMES = ("text", "text_target")
"""The arguments of a tokenizer of transformers for the first input of tokens and for the second."""


@dataclass(frozen=True)
class TextReplay:
    """What was found: the number of texts that were compared, and the first of those with other tokens.

    problem: why there was no comparison.
    """

    texts: int
    different: tuple[str, ...] = ()
    problem: str | None = None

    def line(self) -> str:
        """The comparison in words."""
        if self.problem is not None:
            return f"tokens of texts were not compared: {self.problem}"
        if not self.different:
            return f"the same tokens for {self.texts} texts"
        return f"other tokens for {len(self.different)} of {self.texts} texts: {self.different[0]}"


def replay_texts(folder: Path, vocabularies: Mapping[str, Vocabulary]) -> TextReplay:
    """Compare the tokens of the origin in `folder`, without special ones, with those of each input of tokens."""
    try:
        with redirect_stderr(io.StringIO()), catch_warnings():
            simplefilter("ignore")
            transformers: Any = importlib.import_module("transformers")
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                str(folder.resolve()), local_files_only=True, trust_remote_code=False
            )
            found = [
                _compared(tokenizer, name, vocabulary, text)
                for name, vocabulary in zip(NAMES, vocabularies.values(), strict=False)
                for text in TEXTS
            ]
    except Exception as error:  # whatever another library raises for a tokenizer that it does not take
        return TextReplay(0, problem=" ".join(f"{type(error).__name__}: {error}".split())[:200])
    return TextReplay(len(found), tuple(line for line in found if line is not None))


def _compared(tokenizer: Any, name: str, vocabulary: Vocabulary, text: str) -> str | None:
    """What differs, in words."""
    theirs: list[int] = tokenizer(**{name: text}, add_special_tokens=False).input_ids
    ours = vocabulary.encode(text)
    if ours == theirs:
        return None
    place = next(
        (i for i, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
        min(len(ours), len(theirs)),
    )
    here = slice(max(0, place - 1), place + 3)
    return f"{text[:40]!r} has the tokens {ours[here]} where transformers has {theirs[here]}"
