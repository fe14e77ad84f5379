"""The specs that come with xformc, by name: the path below this folder without `.yaml`, such as `tying/none`."""

from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from xformc.errors import UserError
from xformc.format.names import SPEC

SHIPPED = Path(__file__).resolve().parent
BLOCKS = SHIPPED / "blocks"
"""The blocks of the spec language, which are no specs."""
LIST = "give the path of a spec, the folder of a run, or a name that `xformc list` prints"


def shipped_specs() -> dict[str, Path]:
    """Every shipped spec by its name."""
    paths = sorted(path for path in SHIPPED.rglob("*.yaml") if path.parent != BLOCKS)
    return {path.relative_to(SHIPPED).with_suffix("").as_posix(): path for path in paths}


def find_spec(source: str | Path) -> Path:
    """The file of a spec: a path, also without `.yaml`; a folder with a spec.yaml such as a run; or a shipped name.

    Raises: UserError if there is neither such a file nor such a shipped spec, or a folder without a spec.yaml.
    """
    path = Path(source)
    for file in (path / SPEC, path.with_name(f"{path.name}.yaml") if path.name else path):
        if file.is_file():
            return file
    if path.is_file() or path.suffix:
        return path
    try:
        return find_shipped(str(source))
    except UserError as error:
        if not path.is_dir():
            raise
        run = next((folder for folder in path.parents if (folder / SPEC).is_file()), None)
        hint = "give a folder that has one, such as a run" if run is None else f"give the run that it belongs to, {run}"
        raise UserError(f"there is no {SPEC} in this folder", place=str(path), hint=hint) from error


def find_shipped(name: str) -> Path:
    """The shipped spec of this name; its last part is enough where no other spec ends with it.

    Raises: UserError if there is none, or more than one.
    """
    specs = shipped_specs()
    if name in specs:
        return specs[name]
    found = [full for full in specs if PurePosixPath(full).name == name]
    if len(found) == 1:
        return specs[found[0]]
    if found:
        raise UserError(f"'{name}' is the name of {len(found)} shipped specs", hint=f"write {' or '.join(found)}")
    raise UserError(f"there is no spec '{name}', here or among the shipped ones", hint=_advice(name, specs))


def _advice(name: str, specs: dict[str, Path]) -> str:
    """The spec whose name, or the last part of it, is the most like this one; else where to look."""
    ends = {PurePosixPath(full).name: full for full in reversed(specs)}
    near = get_close_matches(name, [*specs, *ends], n=1)
    return f"did you mean '{ends.get(near[0], near[0])}'?" if near else LIST
