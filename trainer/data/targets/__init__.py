"""Targets of results: how the data of each kind is read."""

from xformc.trainer.data.targets import labels, numbers, vectors

__all__ = ["labels", "numbers", "vectors"]
