"""Kinds of results: what each means for the spec, the loss, the engine's model and its certificate."""

from xformc.compiler.results import ctc, labels, numbers, text, vectors

__all__ = ["ctc", "labels", "numbers", "text", "vectors"]
