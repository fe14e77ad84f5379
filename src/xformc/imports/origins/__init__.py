"""Where imported models come from: each file reads the folders or files of one library."""

from xformc.imports.origins import fairseq, hugging_face, marian

READERS = (hugging_face.READER, fairseq.READER, marian.READER)
"""The readers, of which the first that knows a path reads it."""
