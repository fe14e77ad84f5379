"""Starts `xformc-run`, the C++ program that a wheel of xformc contains."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = os.path.join(os.path.dirname(__file__), "bin", "xformc-run")


def main() -> None:
    """Replace this process by the program."""
    if not os.path.isfile(PROGRAM):
        sys.exit("error: this install of xformc has no C library\nhint: install a wheel, or use xformc translate")
    found = find_spec("onnxruntime")  # which need not be in the folder beside this package
    for folder in () if found is None else found.submodule_search_locations or ():
        for library in sorted(Path(folder, "capi").glob("libonnxruntime.so.*")):
            os.environ.setdefault("XFORMC_ONNXRUNTIME", str(library))
    os.execv(PROGRAM, ["xformc-run", *sys.argv[1:]])
