"""Reads `special_tokens`, of a spec or of one of its inputs: the ids of padding, the unknown token, begin and end."""

from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.tree import Tree
from xformc.format.tokens import MAX_ENDS, SPECIAL, SpecialTokens

NONE = "none"


def read_special_tokens(tree: Tree, problems: list[Problem], usual: SpecialTokens = SPECIAL) -> SpecialTokens:
    """The special tokens that a tree sets, and the `usual` ones; mistakes are appended to `problems`."""
    section = tree.get("special_tokens")
    if section is None:
        return usual
    found = len(problems)
    end = section.get("end")
    ids = SpecialTokens(
        pad=_optional(section, "pad", usual.pad, problems),
        unknown=_optional(section, "unknown", usual.unknown, problems),
        begin=_optional(section, "begin", usual.begin, problems),
        end=usual.end if end is None else _ends(end, problems),
    )
    if len(problems) == found and ids.pad in ids.end:
        hint = "the end of a text would be padding; choose another token, or 'pad: none' for a language model"
        problems.append(Problem(section.span, f"padding cannot be an end token, {ids.pad}", hint))
    return ids


def beyond(tree: Tree, ids: SpecialTokens, size: int, name: str) -> list[Problem]:
    """Report the special tokens that are not in the vocabulary of `size` tokens of the input `name`."""
    section = tree.get("inputs", name, "special_tokens") or tree.get("special_tokens")
    most = max(ids.ids)
    if section is None or most < size:
        return []
    return [Problem(section.span, f"the special token {most} is not in the vocabulary of '{name}', which has {size:,}")]


def _optional(section: Tree, key: str, usual: int | None, problems: list[Problem]) -> int | None:
    value = section.get(key)
    if value is None or value.word == NONE:
        return usual if value is None else None
    return _id(value, problems, f" or '{NONE}'")


def _ends(value: Tree, problems: list[Problem]) -> tuple[int, ...]:
    items = value.items if isinstance(value.value, tuple) else (value,)
    if not 1 <= len(items) <= MAX_ENDS:
        problems.append(Problem(value.span, f"there must be 1 to {MAX_ENDS} end tokens, found {len(items)}"))
    return tuple(dict.fromkeys(_id(item, problems) for item in items)) or (0,)


def _id(value: Tree, problems: list[Problem], otherwise: str = "") -> int:
    if isinstance(value.value, int) and not isinstance(value.value, bool) and value.value >= 0:
        return value.value
    problems.append(Problem(value.span, f"must be the id of a token{otherwise}, found {value.described()}"))
    return 0
