"""Triton Inference Server: the export of an engine, and the Python models that the server runs."""

from xformc.triton.python_models import Texts, Tokens

__all__ = ["Texts", "Tokens"]
