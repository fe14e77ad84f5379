"""Readers of files that hold an input of an example, such as sounds and images."""

from xformc.runtime.media import image, wav

__all__ = ["image", "wav"]
