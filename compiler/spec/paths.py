"""Patterns of parameter paths, as the sections `precision`, `initial` and `train.freeze` write them."""

from collections.abc import Iterable, Mapping, Sequence

from xformc.errors import suggest

Paths = Mapping[str, Sequence[str]]
"""All paths of each parameter, by its name: several if it is tied."""


def fits(pattern: str, path: str) -> bool:
    """Whether a path equals the pattern or starts with it, name by name.

    `*` matches any one name, and `**` any number of names.
    """
    return _fits(pattern.split("/"), path.split("/"), whole=False)


def is_whole(pattern: str, path: str) -> bool:
    """Whether the pattern matches the path to its end."""
    return _fits(pattern.split("/"), path.split("/"), whole=True)


def _fits(wanted: Sequence[str], found: Sequence[str], *, whole: bool) -> bool:
    if not wanted:
        return not (whole and found)
    if wanted[0] == "**":
        return any(_fits(wanted[1:], found[skipped:], whole=whole) for skipped in range(len(found) + 1))
    return bool(found) and wanted[0] in ("*", found[0]) and _fits(wanted[1:], found[1:], whole=whole)


def hint(pattern: str, paths: Iterable[str], kind: str) -> str:
    """A hint for a pattern that matches none of the paths, which are those of such a kind of parameters."""
    known = list(paths)
    beginnings = sorted({"/".join(path.split("/")[:count]) for path in known for count in range(1, 9)})
    stages = ", ".join(sorted({path.split("/")[0] for path in known}))
    return suggest(pattern, beginnings) or f"{kind} are under {stages}"
