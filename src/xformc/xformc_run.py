"""Starts `xformc-run`, the C++ program that a wheel of xformc contains."""

import os
import sys

PACKAGE = os.path.dirname(__file__)
PROGRAM = os.path.join(PACKAGE, "bin", "xformc-run")


def main() -> None:
    """Replace this process by the program."""
    if not os.path.isfile(PROGRAM):
        sys.exit("error: this install of xformc has no C library\nhint: install a wheel, or use xformc translate")
    if not os.path.isdir(os.path.join(os.path.dirname(PACKAGE), "onnxruntime")):  # where the program looks itself
        _name_onnxruntime()
    os.execv(PROGRAM, ["xformc-run", *sys.argv[1:]])


def _name_onnxruntime() -> None:
    """Tell the program of the ONNX Runtime that Python finds, unless the caller names one."""
    from importlib.util import find_spec  # noqa: PLC0415 (rarely needed, and the start counts)
    from pathlib import Path  # noqa: PLC0415

    found = find_spec("onnxruntime")
    for folder in () if found is None else found.submodule_search_locations or ():
        for library in sorted(Path(folder, "capi").glob("libonnxruntime.so.*")):
            os.environ.setdefault("XFORMC_ONNXRUNTIME", str(library))
