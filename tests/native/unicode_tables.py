"""Writes runtime/cpp/unicode_tables.h: `python -m tests.native.unicode_tables`.

The tables are those of the package tokenizers, found by running it on every character: libxformc must cut texts as it
does, and its parts follow different versions of Unicode.
"""

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers

TABLES = Path(__file__).parents[2] / "runtime" / "cpp" / "unicode_tables.h"
CHARACTERS = [chr(one) for one in range(0x110000) if not 0xD800 <= one < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
WIDTH = 120
DIGIT = "7"


def main() -> None:
    TABLES.write_text(tables())


def tables() -> str:
    """The header's text."""
    pairs, others = decompositions()
    return "\n".join(
        [
            f"// Written by tests/native/unicode_tables.py from the package tokenizers {tokenizers.__version__}.",
            "#pragma once",
            "",
            "namespace xformc {",
            "",
            "// clang-format off",
            *_table("What \\p{L} matches, from the first to the last.", "LETTERS[][2]", ranges(matches(r"\p{L}"))),
            *_table("What \\p{N} matches.", "NUMBERS[][2]", ranges(matches(r"\p{N}"))),
            *_table("What \\s matches.", "WHITE_SPACE[][2]", ranges(matches(r"\s"))),
            *_table(
                "Canonical combining classes that are not 0: the first, the last, the class.",
                "COMBINING_CLASSES[][3]",
                classes(),
            ),
            *_table("Characters that two others compose to, and these.", "PAIRS[][3]", pairs),
            *_table("The other decompositions, whole and filled with 0.", "DECOMPOSITIONS[][5]", others),
            *_table("What BertNormalizer leaves out of a text.", "DROPPED[][2]", ranges(bert("clean_text", ""))),
            *_table("What BertNormalizer puts spaces around.", "IDEOGRAPHS[][2]", ranges(bert("handle_chinese_chars"))),
            *_table("Marks that BertNormalizer leaves out after NFD.", "MARKS[][2]", ranges(bert("strip_accents", ""))),
            *_table(
                "Characters with a lower case: the first, the last, the step between them, and what is added to each.",
                "LOWER[][4]",
                lower_cases(),
            ),
            *_table("What BertPreTokenizer cuts out.", "PUNCTUATION[][2]", ranges(punctuation())),
            "// clang-format on",
            "",
            "}  // namespace xformc",
            "",
        ]
    )


def matches(pattern: str) -> list[int]:
    """The characters of a class of the package's regular expressions."""
    rest: Any = tokenizers.normalizers.Replace(tokenizers.Regex(f"[^{pattern}]"), "")
    return [ord(one) for one in rest.normalize_str("".join(CHARACTERS))]


def ranges(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """The first and the last of each run of numbers."""
    starts = [one for place, one in enumerate(numbers) if place == 0 or one != numbers[place - 1] + 1]
    ends = [one for place, one in enumerate(numbers) if place + 1 == len(numbers) or one + 1 != numbers[place + 1]]
    return list(zip(starts, ends, strict=True))


def classes() -> list[tuple[int, ...]]:
    """The combining classes, by where NFD puts a character beside one of each class."""
    decompose: Any = tokenizers.normalizers.NFD().normalize_str
    by_class = {unicodedata.combining(one): one for one in reversed(CHARACTERS) if unicodedata.combining(one)}
    least, most = by_class[min(by_class)], by_class[max(by_class)]
    plain = [one for one, whole in each(tokenizers.normalizers.NFD()) if whole == one]

    def moves(characters: Sequence[str], mark: str, *, before: bool) -> set[str]:
        """Those that change places with a mark that they stand before, or after."""
        lines = decompose("\n".join(one + mark if before else mark + one for one in characters if one != "\n"))
        return {line[1] if before else line[0] for line in lines.split("\n") if (line[0] == mark) == before}

    found = {least, most} | moves(plain, most, before=False) | moves(plain, least, before=True)
    candidates = sorted(found)
    marks = {unicodedata.combining(one): one for one in reversed(candidates)}
    marks = {number: marks[number] for number in sorted(marks) if number}
    below = {number: moves(candidates, mark, before=False) - {mark} for number, mark in marks.items()}
    above = {number: moves(candidates, mark, before=True) - {mark} for number, mark in marks.items()}
    of = {
        one: next(number for number in marks if one not in below[number] and one not in above[number])
        for one in candidates
    }
    return [
        (first, last, number)
        for number in marks
        for first, last in ranges(sorted(ord(one) for one, its in of.items() if its == number))
    ]


def bert(feature: str, becomes: str | None = None) -> list[int]:
    """The characters that one feature of BertNormalizer changes, those that become a text if one is given."""
    names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    found = each(tokenizers.normalizers.BertNormalizer(**{name: name == feature for name in names}))
    return [ord(one) for one, text in found if (text != one if becomes is None else text == becomes)]


def each(normalizer: Any) -> Iterator[tuple[str, str]]:
    """Each character with what a normalizer makes of it, found in one text with a digit that no other becomes."""
    others = [one for one in CHARACTERS if one != DIGIT]
    return zip(others, normalizer.normalize_str(DIGIT.join(others)).split(DIGIT), strict=True)


def lower_cases() -> list[tuple[int, ...]]:
    """Runs of characters whose lower cases are as far from them. One has two characters: U+0130, an i with a dot."""
    cases = {ord(one): text for one, text in each(tokenizers.normalizers.Lowercase()) if text != one}
    assert cases.pop(0x130) == "i\u0307" and all(len(text) == 1 for text in cases.values())
    rows: list[list[int]] = []
    for one, text in cases.items():
        far = (ord(text) - one) % (1 << 32)
        if rows and rows[-1][3] == far and (one - rows[-1][1]) == (rows[-1][2] or one - rows[-1][1]) <= 2:
            rows[-1][1:3] = one, one - rows[-1][1]
        else:
            rows.append([one, one, 0, far])
    return [(first, last, step or 1, far) for first, last, step, far in rows]


def punctuation() -> list[int]:
    """What stands alone between letters."""
    cut: Any = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    return sorted({ord(piece) for piece, _ in cut("a" + "a".join(CHARACTERS)) if len(piece) == 1 and piece != "a"})


def decompositions() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The pairs that compose to a character, by it; and the whole decompositions of the characters that do not come
    back."""
    compose: Any = tokenizers.normalizers.NFC().normalize_str
    pairs: list[tuple[int, ...]] = []
    others: list[tuple[int, ...]] = []
    for one, whole in each(tokenizers.normalizers.NFD()):
        if whole == one or ord(one) in HANGUL:
            continue
        if compose(one) == one:
            first, last = compose(whole[:-1]), whole[-1]
            assert len(first) == 1 and compose(first + last) == one
            pairs.append((ord(one), ord(first), ord(last)))
        else:
            others.append((ord(one), *map(ord, whole), *[0] * (4 - len(whole))))
    return pairs, others


def _table(comment: str, name: str, rows: Iterable[Sequence[int]]) -> list[str]:
    lines, line = [f"// {comment}", f"inline constexpr char32_t {name} = {{"], " "
    for row in rows:
        text = f" {{{', '.join(f'{number:#x}' if number > 9 else str(number) for number in row)}}},"
        if len(line) + len(text) > WIDTH:
            lines, line = [*lines, line], " "
        line += text
    return [*lines, line, "};", ""]


if __name__ == "__main__":
    sys.exit(main())
