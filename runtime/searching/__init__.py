"""Texts that a search writes for an input: translations, their prefixes, phrases, alternatives and alignments."""
