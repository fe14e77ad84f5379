"""Readers of files that hold an input of an example, such as sounds."""

from xformc.runtime.media import wav

__all__ = ["wav"]
