"""Starts `xformc-run`, the C++ program that a wheel of xformc contains."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(__file__), "bin", "xformc-run")


def main() -> None:
    """Replace this process by the program."""
    if not os.path.isfile(PROGRAM):
        sys.exit("error: this install of xformc has no C library\nhint: install a wheel, or use xformc translate")
    os.execv(PROGRAM, ["xformc-run", *sys.argv[1:]])
