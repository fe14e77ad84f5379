"""Targets of results: how the data of each kind is read."""

from xformc.trainer.data.targets import alignment, labels, numbers, vectors

__all__ = ["alignment", "labels", "numbers", "vectors"]
