"""Models that a process opened before it forked: its child keeps them, or could not end."""

import ctypes
import os
from typing import Any
from weakref import WeakSet

_opened = WeakSet[Any]()


def keep_in_children(session: Any) -> None:
    """Never free this session of ONNX Runtime in a child of this process.

    To free one is to wait for its threads, and a child has none of them: it would hang when it ends.
    """
    _opened.add(session)


def _keep() -> None:
    for session in _opened:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
