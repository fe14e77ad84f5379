"""Finding a spec by its path, or by its bare name among the specs that come with xformc."""

from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from xformc.errors import UserError


def find_spec(spec: str) -> Path:
    """The file that `spec` means: a path, or a name such as `transformer_base`.

    Raises: UserError if there is neither such a file nor such a shipped spec.
    """
    path = Path(spec)
    if path.exists() or path.suffix or "/" in spec:
        return path
    shipped = Path(str(resources.files("xformc.specs")))
    names = {file.stem: file for file in sorted(shipped.rglob("*.yaml")) if file.parent.name != "blocks"}
    if spec in names:
        return names[spec]
    near = get_close_matches(spec, names, n=1)
    raise UserError(
        "no such file, and no spec of this name comes with xformc",
        place=spec,
        hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}",
    )
