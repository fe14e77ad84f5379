"""Text and token ids: tokenizers with their vocabularies, lines of files, words, and segments with times."""
