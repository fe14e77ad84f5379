"""The names of labels, their ids, and the file of a run that lists them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.format.names import LABELS
from xformc.trainer.data.text_files import Texts

COLUMN = "labels"
LISTED = 8


def label_names(labels: Iterable[str], classes: int, place: str) -> tuple[str, ...]:
    """Return the distinct labels, sorted; the model's label `i` is the `i`-th name.

    Raises: UserError unless their number is `classes`, the size of the model's output.
    """
    names = tuple(sorted(set(labels)))
    if len(names) != classes:
        raise UserError(
            f"has {len(names)} distinct labels, but the spec's model predicts {classes}: {some(names)}",
            place=place,
            hint=f"set the size of the output's last axis to {len(names)}",
        )
    return names


def labels_of(texts: Texts, *, each: bool) -> list[list[str]]:
    """Return the labels of each row: one, or with `each` several separated by spaces."""
    return [row.split() if each else [row] for row in texts.columns[COLUMN]]


def label_ids(texts: Texts, names: Sequence[str], *, each: bool) -> list[list[int]]:
    """Return the labels of each row as ids. Raises: UserError for labels missing from `names`, with the line."""
    ids = {name: index for index, name in enumerate(names)}
    rows = labels_of(texts, each=each)
    unknown = {label: line for line, row in zip(texts.lines, rows, strict=True) for label in row if label not in ids}
    if unknown:
        raise UserError(
            f"labels that the model does not know: {some(list(unknown))}",
            place=f"{texts.path}:{next(iter(unknown.values()))}",
            hint=f"the labels are {some(names)}",
        )
    return [[ids[label] for label in row] for row in rows]


def label_files(results: Iterable[str]) -> dict[str, str]:
    """Return the file name of each result's labels: `labels.txt` for a single result, else `RESULT.labels.txt`."""
    names = list(results)
    return {name: LABELS if len(names) == 1 else f"{name}.{LABELS}" for name in names}


def save_labels(labels: Mapping[str, Sequence[str]], folder: Path) -> None:
    """Write the names of each result's labels, one per line."""
    for result, file in label_files(labels).items():
        with atomic_write(folder / file) as part:
            part.write_text("".join(f"{name}\n" for name in labels[result]), encoding="utf-8")


ONE_LABEL = "a line is words, one tab, and a label for each word, separated by spaces"


def require_one_each(texts: Texts, counts: Mapping[str, Sequence[int]], hint: str = ONE_LABEL) -> None:
    """Check that two columns have the same number of items in each row; `counts` has the numbers by column.

    Raises: UserError at the first row where they differ, with the number of further such rows.
    """
    (first, firsts), (second, seconds) = counts.items()
    wrong = [index for index, (one, other) in enumerate(zip(firsts, seconds, strict=True)) if one != other]
    if wrong:
        index, more = wrong[0], len(wrong) - 1
        raise UserError(
            f"{firsts[index]} {first} and {seconds[index]} {second}"
            + (f" ({more:,} more lines also differ)" if more else ""),
            place=f"{texts.path}:{texts.lines[index]}",
            hint=hint,
        )


def some(names: Sequence[str]) -> str:
    """Return the names, or the first few and the number of others."""
    rest = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {rest:,} more" if rest > 0 else "")
