"""The packages that the bare install leaves out, and the extras that bring them."""

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
}


def is_optional(error: ModuleNotFoundError) -> bool:
    """Whether the missing package is one that an extra brings."""
    return (error.name or "").partition(".")[0] in EXTRAS


def explain_missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with the command that installs the package, if it is one of ours to name."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    message = f"this needs the package {package}: pip install 'xformc[{EXTRAS[package]}]'"
    return ModuleNotFoundError(message, name=error.name)
