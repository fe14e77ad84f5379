"""Targets of results: how the data of each kind is read."""

from xformc.trainer.data.targets import ctc, labels, numbers, vectors

__all__ = ["ctc", "labels", "numbers", "vectors"]
