"""ONNX Runtime, a choice of the user's: the extra `cpu` brings it for processors, `gpu` for NVIDIA GPUs as well."""

from typing import Any

from xformc.errors import UserError


def onnx_runtime() -> Any:
    """The module `onnxruntime`, imported when it is first needed.

    Raises: UserError if neither package of it is installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415 (what runs no engine works without it)
    except ModuleNotFoundError as error:
        raise UserError(
            "this needs ONNX Runtime, the package onnxruntime, which is not installed",
            hint="pip install 'xformc[cpu]', or for an NVIDIA GPU: pip install 'xformc[gpu]'",
        ) from error
    return onnxruntime
