"""The packages that the bare install leaves out, and the extras that bring them."""

from importlib import import_module
from typing import Any

EXTRAS = {
    "torch": "build",
    "onnx": "build",
    "ml_dtypes": "build",
    "pydantic": "build",
    "yaml": "build",
    "safetensors": "build",
    "sacrebleu": "train",
    "num2words": "demo",
    "matplotlib": "report",
    "tokenizers": "tokenizers",
    "zstandard": "corpora",
    "pyarrow": "corpora",
    "py3langid": "corpora",
    "llguidance": "constraints",
    "ray": "ray",
    "outlines_core": "constraints",
}


def missing_extra(error: ModuleNotFoundError) -> tuple[str, str] | None:
    """The package that is missing and the extra that brings it; None if no extra does."""
    package = (error.name or "").partition(".")[0]
    return (package, EXTRAS[package]) if package in EXTRAS else None


def explain_missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with the command that installs the package, if an extra brings it."""
    missing = missing_extra(error)
    if missing is None:
        return error
    package, extra = missing
    return ModuleNotFoundError(f"this needs the package {package}: pip install 'xformc[{extra}]'", name=error.name)


def import_extra(module: str) -> Any:
    """A module of a package that an extra brings. Raises: ModuleNotFoundError as `explain_missing` makes it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise explain_missing(error) from error
