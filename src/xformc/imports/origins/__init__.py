"""Where imported models come from: each file reads the folders or files of one library."""

from xformc.imports.origins import (
    ctranslate2,
    ctranslate2_decoder,
    ctranslate2_whisper,
    eole,
    fairseq,
    hugging_face,
    marian,
    opennmt,
)

READERS = (
    ctranslate2_whisper.READER,
    ctranslate2_decoder.READER,
    ctranslate2.READER,
    eole.READER,
    hugging_face.READER,
    opennmt.READER,
    fairseq.READER,
    marian.READER,
)
"""The readers, of which the first that knows a path reads it."""
