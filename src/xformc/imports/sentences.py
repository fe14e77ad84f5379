"""What sentence-transformers puts around an encoder: how its states become a vector, and whether that has length 1."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.json_file import read_json

MODULES, POOLING = "modules.json", "1_Pooling"
MAX_BYTES = 1 << 20
MODE = "pooling_mode_"
MODES = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}
NAMES = ("Transformer", "Pooling", "Normalize")
PREFIX = "sentence."


def read_modules(folder: Path) -> dict[str, Scalar]:
    """The values `sentence.pooling` and `sentence.normalize` of a folder; none if it has no modules.json.

    Raises: UserError for modules other than an encoder, one pooling and perhaps a normalization.
    """
    path = folder / MODULES
    if not path.is_file():
        return {}
    names = read_json(path, MAX_BYTES, "a list of modules", _names)
    if names not in (NAMES[:2], NAMES):
        wanted = "Transformer, Pooling and perhaps Normalize"
        raise UserError(f"has the modules {', '.join(names)[:200]}; imported are {wanted}", place=str(path))
    values: dict[str, Scalar] = {f"{PREFIX}pooling": _mode(folder / POOLING / "config.json")}
    return {**values, f"{PREFIX}normalize": True} if len(names) == len(NAMES) else values


def modules_of(values: Mapping[str, Scalar], width: int) -> dict[str, object]:
    """The contents of the files that say these values, by name; none without a pooling.

    Raises: UserError for vectors of each position that are normalized, which no file can say.
    """
    mode, normalize = (values.get(f"{PREFIX}{key}") for key in ("pooling", "normalize"))
    if mode is None and normalize:
        raise UserError("normalized vectors of each position cannot be said: pool them, or do not normalize them")
    if mode is None:
        return {}
    names = NAMES if normalize else NAMES[:2]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for index, name in enumerate(names)
    ]
    modes = {f"{MODE}{key}": word == mode for key, word in MODES.items()}
    return {MODULES: modules, f"{POOLING}/config.json": {"word_embedding_dimension": width, **modes}}


def _names(content: object) -> tuple[str, ...]:
    """The class of each module, without its package."""
    items = cast(list[object], content) if isinstance(content, list) else []
    kinds = [cast(Mapping[str, object], item).get("type") if isinstance(item, dict) else None for item in items]
    return tuple(str(kind).rpartition(".")[2] for kind in kinds)


def _mode(path: Path) -> str:
    if not path.is_file():
        raise UserError("has no pooling", place=str(path))
    content = read_json(path, MAX_BYTES, "a config", lambda content: content)
    config: Mapping[str, object] = cast(Mapping[str, object], content) if isinstance(content, dict) else {}
    chosen = [key.removeprefix(MODE) for key, value in config.items() if key.startswith(MODE) and value is True]
    chosen = chosen or [f"{config.get('pooling_mode')}_token{'' if config.get('pooling_mode') == 'cls' else 's'}"]
    if len(chosen) != 1 or chosen[0] not in MODES:
        raise UserError(f"pools by {', '.join(chosen)[:100]}; imported is one of {', '.join(MODES)}", place=str(path))
    return MODES[chosen[0]]
