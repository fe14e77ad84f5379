"""Verifying an engine with what is installed: all checks of its certificate, or those that need no PyTorch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from xformc.errors import UserError
from xformc.extras import missing_extra
from xformc.format.certificate import CERTIFICATE_BYTES, Certificate, read_certificate
from xformc.format.document import read_document
from xformc.format.names import CERTIFICATE
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
) -> tuple[Certificate, str]:
    """As `verify`, with a line that names the recorded stages that were not repeated, and why; empty for none."""
    if runtime not in get_args(RuntimeName):
        raise UserError(f"runtime is {runtime!r}", hint=f"use {' or '.join(get_args(RuntimeName))}")
    if runtime == "cpp":
        return compare_runtimes(engine, progress), ""
    try:
        from xformc.compiler.certify import verify_engine  # noqa: PLC0415 (it imports torch)
    except ModuleNotFoundError as error:
        if missing_extra(error) is None:
            raise
        certificate, left_out = check_engine(engine, progress)
        return certificate, _not_repeated(left_out, "these compare with PyTorch: pip install 'xformc[build]'")
    certificate = verify_engine(engine, progress)
    recorded = read_certificate(read_document(engine / CERTIFICATE, limit=CERTIFICATE_BYTES))
    repeated = {stage.name for stage in certificate.stages}
    left_out = [stage.name for stage in recorded.stages if stage.name not in repeated]
    return certificate, _not_repeated(
        left_out, "the engine lacks the models that they check, or the weights before quantization"
    )


def _not_repeated(names: Sequence[str], why: str) -> str:
    return f"not repeated: {', '.join(names)}; {why}" if names else ""
