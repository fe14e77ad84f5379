"""Kinds of results: how each is read from an engine's outputs, and written as text and JSON."""

from xformc.runtime.kinds import ctc, labels, numbers, vectors

__all__ = ["ctc", "labels", "numbers", "vectors"]
