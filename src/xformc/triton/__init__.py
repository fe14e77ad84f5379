"""Triton Inference Server: what `xformc export --triton` writes, and the models that the server then runs."""

from xformc.triton.python_models import Texts, Tokens

__all__ = ["Texts", "Tokens"]
