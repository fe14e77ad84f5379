"""The parameters of a spec: paths, axes and counts."""

from dataclasses import dataclass

from xformc.compiler.spec import Spec


@dataclass(frozen=True)
class ParameterRow:
    """One weight: its path, its axes and their sizes, and the other paths that are tied to it."""

    path: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    count: int
    trained: bool
    tied: tuple[str, ...]


def parameter_rows(spec: Spec) -> list[ParameterRow]:
    """The parameters of a spec, in the order of the model. Raises: SpecError."""
    paths = spec.paths()
    return [
        ParameterRow(
            item.name,
            item.type.names,
            item.type.sizes(),
            item.count,
            item.trained,
            tuple(path for path in paths[item.name] if path != item.name),
        )
        for item in spec.graph().parameters
    ]


def parameters_text(rows: list[ParameterRow]) -> str:
    """One line for each parameter."""
    shapes = [f"[{', '.join(map('{}={}'.format, row.axes, row.shape))}]" for row in rows]
    wide, long = (max(map(len, column), default=0) for column in ([row.path for row in rows], shapes))
    lines = [
        f"{row.path:<{wide}}  {shape:<{long}}  {row.count:>12,}{_notes(row)}"
        for row, shape in zip(rows, shapes, strict=True)
    ]
    return "\n".join(lines)


def _notes(row: ParameterRow) -> str:
    notes = [] if row.trained else ["not trained"]
    if row.tied:
        more = len(row.tied) - 1
        notes.append(f"tied to {row.tied[0]}{f' and {more} more' if more else ''}")
    return f"  {', '.join(notes)}" if notes else ""
