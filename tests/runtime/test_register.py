"""RegisterCustomOps with an ONNX Runtime that is too old, and with two, played by tables of functions in Python."""

import subprocess
import sys

import pytest

from tests.runtime.kernel_session import kernel_library

FAKE = """
import ctypes, sys

ADDRESS = ctypes.c_void_p
CreateStatus = ctypes.CFUNCTYPE(ADDRESS, ctypes.c_int, ctypes.c_char_p)
Create = ctypes.CFUNCTYPE(ADDRESS, ctypes.c_char_p, ctypes.POINTER(ADDRESS))
Add = ctypes.CFUNCTYPE(ADDRESS, ADDRESS, ADDRESS)
GetApi = ctypes.CFUNCTYPE(ADDRESS, ctypes.c_uint32)
kept, said = [], []

def status(code, message):
    said.append(message.decode())
    return 1

def create(name, out):
    out[0] = 1
    return None

def base(newest):
    "An OrtApiBase whose newest version is this one, with the entries that RegisterCustomOps calls."
    table = (ADDRESS * 300)()
    functions = {0: CreateStatus(status), 26: Create(create), 27: Add(lambda *_: None), 28: Add(lambda *_: None)}
    for place, function in functions.items():
        table[place] = ctypes.cast(function, ADDRESS)
    get = GetApi(lambda version: ctypes.addressof(table) if version <= newest else None)
    both = (ADDRESS * 2)(ctypes.cast(get, ADDRESS), None)
    kept.extend([table, functions, get, both])
    return both

register = ctypes.CDLL(sys.argv[1]).RegisterCustomOps
register.restype = ADDRESS
for newest in map(int, sys.argv[2:]):
    print(said.pop() if register(None, base(newest)) else "registered")
"""


@pytest.mark.parametrize(
    ("versions", "answers"),
    [
        (("18",), ["registered"]),
        (("17",), ["xformc's kernels need a newer ONNX Runtime"]),
        (("24", "31"), ["registered", "registered"]),
    ],
    ids=["18", "too old", "two in one process"],
)
def test_the_operators_register_with_every_onnx_runtime_that_has_their_version(
    versions: tuple[str, ...], answers: list[str]
) -> None:
    command = [sys.executable, "-c", FAKE, str(kernel_library()), *versions]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == answers
