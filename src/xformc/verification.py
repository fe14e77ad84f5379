"""Verifying an engine with what is installed: all checks of its certificate, or those that need no PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

from xformc.errors import UserError
from xformc.extras import missing_extra
from xformc.format.certificate import Certificate
from xformc.runtime.checks.agreement import RuntimeName, compare_runtimes
from xformc.runtime.checks.self_check import check_engine


def verify(
    engine: str | Path, progress: Callable[[str], None] = lambda _: None, *, runtime: RuntimeName = "python"
) -> Certificate:
    """Repeat the checks of an engine's certificate on this machine; its `passed` says whether all are within bounds.

    Without PyTorch it checks what needs the engine alone: the stages files, model and batch.

    runtime: "cpp" checks instead that libxformc gives the tokens, texts and score bits of the Python runtime.

    Raises: UserError if the folder is no whole engine, if its model is not that of its spec, or without libxformc.
    """
    return verify_parts(Path(engine), progress, runtime)[0]


def verify_parts(
    engine: Path, progress: Callable[[str], None], runtime: RuntimeName = "python"
) -> tuple[Certificate, list[str]]:
    """As `verify`, with the names of the recorded stages that were not repeated because PyTorch is not installed."""
    if runtime not in get_args(RuntimeName):
        raise UserError(f"runtime is {runtime!r}", hint=f"use {' or '.join(get_args(RuntimeName))}")
    if runtime == "cpp":
        return compare_runtimes(engine, progress), []
    try:
        from xformc.compiler.certify import verify_engine  # noqa: PLC0415 (it imports torch)
    except ModuleNotFoundError as error:
        if missing_extra(error) is None:
            raise
        return check_engine(engine, progress)
    return verify_engine(engine, progress), []
